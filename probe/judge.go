package probe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// judge compares who the apiserver saw with who was asserted. More groups than
// asserted are no fault: the apiserver adds system:authenticated.
func judge(body []byte, asserted *identity.Forwarded) Verdict {
	seen, ok := reviewedUser(body)
	if !ok {
		return unknown("the apiserver's answer to the probe is no SelfSubjectReview")
	}
	var missing []string
	for _, group := range asserted.Groups {
		if !slices.Contains(seen.Groups, group) {
			missing = append(missing, "group (--requestheader-group-headers)")
		}
	}
	for key, values := range asserted.Extra {
		if !slices.Equal(seen.Extra[key], values) {
			missing = append(missing, "extra (--requestheader-extra-headers-prefix)")
		}
	}
	if asserted.UID != "" && seen.UID != asserted.UID {
		missing = append(missing, "uid (--requestheader-uid-headers)")
	}
	message := ""
	switch {
	case seen.Username != asserted.User:
		message = fmt.Sprintf("the apiserver saw another name than the asserted one: user %q, groups %q", seen.Username, seen.Groups)
	case len(missing) > 0:
		message = fmt.Sprintf("the apiserver saw the asserted name without its %s: user %q, groups %q",
			strings.Join(missing, ", "), seen.Username, seen.Groups)
	default:
		return Verdict{Trust: v1.TrustTrusted}
	}
	return Verdict{Trust: v1.TrustNotHonoured, Message: text.Escape(message, maxMessage)}
}

// reviewedUser is whom the answer to a SelfSubjectReview names.
func reviewedUser(body []byte) (authenticationv1.UserInfo, bool) {
	var review authenticationv1.SelfSubjectReview
	if !decode(body, &review) || review.Kind != "SelfSubjectReview" ||
		review.APIVersion != authenticationv1.SchemeGroupVersion.String() {
		return authenticationv1.UserInfo{}, false
	}
	return review.Status.UserInfo, true
}

// decode reads an answer, unless it would take many times its size: who answers
// is chosen by the author of a ProxyKubeApi (AUTH-13).
func decode(body []byte, into any) bool {
	if !json.Valid(body) {
		return false
	}
	if c := boundedjson.Count(body); c.TooManyMembers() || c.TooManyElements() {
		return false
	}
	return json.Unmarshal(body, into) == nil
}

// forbidden is an apiserver whose authorizer keeps the review from the user it
// saw, whom its answer names (`User "x" cannot create resource …`).
func forbidden(body []byte, asserted *identity.Forwarded) Verdict {
	v := unknown("the apiserver forbids the probe's SelfSubjectReview (403)")
	var status metav1.Status
	if decode(body, &status) && status.Kind == "Status" {
		v.NamesAssertedUser = strings.Contains(status.Message, strconv.Quote(asserted.User))
	}
	return v
}
