package access

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// apiserver reads requests as kube-apiserver configures it to
// (server.NewRequestInfoResolver).
var apiserver = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// Info says what kube-apiserver takes a request for p with this method and these
// query parameters to be. The code that answers is the apiserver's own. An error
// says that the apiserver cannot read the request either; it quotes the path.
//
// The body and the Upgrade header do not matter: an exec is a get or a create of
// pods/exec. Of the query only watch and the name in the field selector matter;
// FieldSelector and LabelSelector of the result are not complete.
//
// It costs several allocations: Follows asks first whether there is a need.
func (p Path) Info(method string, query url.Values) (*request.RequestInfo, error) {
	return apiserver.NewRequestInfo(&http.Request{
		Method: method,
		URL:    &url.URL{Path: p.Decoded, RawQuery: listParameters(query).Encode()},
	})
}

// listParameters are the parameters of a list that decide what it is. The
// apiserver ignores the field selector when it cannot decode all list options,
// and then writes the query to its log. Here a client would write to the log of
// the proxy, so such a selector is left out before.
func listParameters(query url.Values) url.Values {
	needed := make(url.Values, 2)
	if watch := query["watch"]; len(watch) > 0 {
		needed["watch"] = watch[:1]
	}
	if selector := query["fieldSelector"]; len(selector) > 0 {
		var options internalversion.ListOptions
		if metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &options) == nil {
			needed["fieldSelector"] = selector
		}
	}
	return needed
}

// Follows reports whether the response to a request for p has no end of its own:
// a watch, or the log of a pod that is followed. rawQuery is the query as the
// client sent it.
func (p Path) Follows(method, rawQuery string) bool {
	watchPath := strings.Contains(p.Decoded, "/watch/") // /api/v1/watch/pods, served since 1.0
	if rawQuery == "" && !watchPath {
		return false
	}
	query, _ := url.ParseQuery(rawQuery) // what can be read of it, as the apiserver does
	if !watchPath && !query.Has("watch") && !query.Has("follow") {
		return false
	}
	info, err := p.Info(method, query)
	if err != nil || !info.IsResourceRequest {
		return false
	}
	return info.Verb == "watch" ||
		info.Verb == "get" && info.APIGroup == "" && info.Resource == "pods" && info.Subresource == "log" && isTrue(query["follow"])
}

// isTrue reads a boolean parameter as the apiserver's conversion does: everything
// but false and 0 is true, and only the first value counts.
func isTrue(values []string) bool {
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}
