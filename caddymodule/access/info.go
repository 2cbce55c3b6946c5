package access

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Info is what kube-apiserver takes a request to be (request.RequestInfo).
type Info struct {
	// IsResource is false for /version, /api, /healthz and the like: only
	// Verb, the lower-case HTTP method, is set then.
	IsResource bool
	// Verb is get, list, watch, create, update, patch, delete,
	// deletecollection or proxy; empty for a method that is none of them.
	Verb        string
	APIGroup    string // empty for the core group
	Version     string
	Namespace   string
	Resource    string
	Subresource string
	// Name is the object's, from the path or, on a list or watch, from the
	// field selector metadata.name=<name>.
	Name string
	// Invalid says that the apiserver cannot read the request either and
	// answers with an error.
	Invalid bool
}

// Info says what a request for p with this method and these query parameters
// is. Neither RequestInfo nor Info looks at the body or at Upgrade: an exec is
// a get or a create of pods/exec.
func (p Path) Info(method string, query url.Values) Info {
	info := Info{}
	parts := p.apiParts(&info)
	if !info.IsResource {
		info.Verb = strings.ToLower(method)
		return info
	}
	// /{special verb}/..., deprecated since 1.2 and still served for watch.
	if parts[0] == "watch" || parts[0] == "proxy" {
		if len(parts) < 2 {
			// What the apiserver, too, has set when it gives up.
			info.Verb = strings.ToLower(method)
			info.Invalid = true
			return info
		}
		info.Verb, parts = parts[0], parts[1:]
	} else {
		info.Verb = verbOf(method)
	}
	// /namespaces/{namespace}/{resource}/..., but status and finalize are
	// subresources of the namespace itself.
	if parts[0] == "namespaces" && len(parts) > 1 {
		info.Namespace = parts[1]
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	info.Resource = parts[0]
	if len(parts) >= 2 {
		info.Name = parts[1]
	}
	if len(parts) >= 3 && info.Verb != "proxy" {
		info.Subresource = parts[2]
	}
	if info.Name == "" {
		info.withoutName(query)
	}
	return info
}

// apiParts reads /api/{version} or /apis/{group}/{version} into info and
// returns what follows; at least one part when info.IsResource.
func (p Path) apiParts(info *Info) []string {
	parts := p.Segments
	if len(parts) < 3 {
		return nil
	}
	switch parts[0] {
	case "api":
	case "apis":
		if len(parts) < 4 {
			return nil
		}
		info.APIGroup = parts[1]
		parts = parts[1:]
	default:
		return nil
	}
	info.IsResource, info.Version = true, parts[1]
	return parts[2:]
}

func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// withoutName turns get into list or watch and delete into deletecollection.
func (info *Info) withoutName(query url.Values) {
	switch info.Verb {
	case "get":
		info.Verb = "list"
		if isTrue(query, "watch") {
			info.Verb = "watch"
		}
		info.Name = selectedName(query)
	case "delete":
		info.Verb = "deletecollection"
	}
}

// isTrue reads a boolean parameter as conversion of the apiserver does:
// everything but false and 0 is true, and only the first value counts.
func isTrue(query url.Values, name string) bool {
	values := query[name]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// Follows reports whether the response to the request has no end of its own:
// a watch, or the log of a pod that is followed.
func (info Info) Follows(query url.Values) bool {
	return info.IsResource && (info.Verb == "watch" ||
		info.Verb == "get" && info.APIGroup == "" && info.Resource == "pods" && info.Subresource == "log" && isTrue(query, "follow"))
}

// selectedName is the name that the field selector asks for. The apiserver
// takes it only when it can decode all list options, so its own decoder is
// asked in the rare case that there is a selector.
func selectedName(query url.Values) string {
	if len(query["fieldSelector"]) == 0 {
		return ""
	}
	var options internalversion.ListOptions
	err := metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &options)
	if err != nil || options.FieldSelector == nil {
		return ""
	}
	name, ok := options.FieldSelector.RequiresExactMatch("metadata.name")
	if !ok || len(content.IsPathSegmentName(name)) > 0 {
		return ""
	}
	return name
}
