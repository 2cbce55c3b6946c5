package probe

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

var settings = identity.Settings{UserPrefix: "t:", GroupPrefix: "g:"}

// server serves handler and returns its base URL with a path base.
func server(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL + "/k8s/c-1"
}

// transport keeps no connection, so that a test's server can close.
func transport() http.RoundTripper { return &http.Transport{DisableKeepAlives: true} }

func at(rt http.RoundTripper, base string) Apiserver {
	return Apiserver{Transport: rt, Base: base, Answers: boundedjson.NewReader(1)}
}

// seen is who the requestheader authenticator of a real apiserver sees, with
// the header flags given.
func seen(t *testing.T, r *http.Request, uid, group, extra []string) user.Info {
	a, err := headerrequest.New([]string{"X-Remote-User"}, uid, group, extra)
	if err != nil {
		t.Fatal(err)
	}
	res, ok, err := a.AuthenticateRequest(r)
	if err != nil || !ok {
		t.Errorf("no identity: %v", err)
		return &user.DefaultInfo{}
	}
	return res.User
}

func answer(w http.ResponseWriter, code int, name, uid string, groups []string, extra map[string][]string) {
	review := authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
	}
	review.Status.UserInfo = authenticationv1.UserInfo{Username: name, UID: uid, Groups: groups}
	for key, values := range extra {
		if review.Status.UserInfo.Extra == nil {
			review.Status.UserInfo.Extra = map[string]authenticationv1.ExtraValue{}
		}
		review.Status.UserInfo.Extra[key] = values
	}
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(review)
}

var (
	uidFlag   = []string{"X-Remote-Uid"}
	groupFlag = []string{"X-Remote-Group"}
	extraFlag = []string{"X-Remote-Extra-"}
)

func TestTransportFaults(t *testing.T) {
	gone := "http://127.0.0.1:1"
	v := at(transport(), gone).CheckTrust(t.Context(), settings)
	if v.Trust != v1.TrustUnknown || !strings.Contains(v.Message, "refused") {
		t.Errorf("verdict %+v", v)
	}
	checkMessage(t, v)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	base := server(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); <-r.Context().Done() })
	v = at(transport(), base).CheckTrust(ctx, settings)
	if v.Trust != v1.TrustUnknown || !strings.Contains(v.Message, "in time") {
		t.Errorf("verdict %+v", v)
	}

	v = at(transport(), base).CheckTrust(t.Context(), identity.Settings{UserPrefix: "system:", GroupPrefix: "g:"})
	if v.Trust != v1.TrustUnknown || !strings.Contains(v.Message, "has a reserved system: name") {
		t.Errorf("verdict %+v", v)
	}
}
