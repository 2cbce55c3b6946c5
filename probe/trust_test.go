package probe

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// TRUST-1: what an apiserver with these flags makes of the probe.
func TestFlags(t *testing.T) {
	tests := []struct {
		name              string
		uid, group, extra []string
		forwardUID        bool
		trust             v1.Trust
		message           []string // parts
	}{
		{"all flags", uidFlag, groupFlag, extraFlag, false, v1.TrustTrusted, nil},
		{"all flags and the uid", uidFlag, groupFlag, extraFlag, true, v1.TrustTrusted, nil},
		{"no uid flag, none forwarded", nil, groupFlag, extraFlag, false, v1.TrustTrusted, nil},
		{"no uid flag", nil, groupFlag, extraFlag, true, v1.TrustNotHonoured, []string{"without its uid", `user "t:proxyauth-probe"`}},
		{"no group flag", uidFlag, nil, extraFlag, false, v1.TrustNotHonoured, []string{"without its group (--requestheader-group-headers)", `groups ["system:authenticated"]`}},
		{"no extra flag", uidFlag, groupFlag, nil, false, v1.TrustNotHonoured, []string{"without its extra (--requestheader-extra-headers-prefix)"}},
		{"no flags", nil, nil, nil, true, v1.TrustNotHonoured, []string{"group", "extra", "uid"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := server(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var sent authenticationv1.SelfSubjectReview
				if err := json.Unmarshal(body, &sent); err != nil || sent.Kind != "SelfSubjectReview" || sent.APIVersion != "authentication.k8s.io/v1" {
					t.Errorf("review %s", body)
				}
				if r.Method != "POST" || r.RequestURI != "/k8s/c-1"+reviewPath || r.Header.Get("Content-Type") != "application/json" ||
					r.Header.Get("Accept") != "application/json" || r.Header["Authorization"] != nil {
					t.Errorf("request %s %s %v", r.Method, r.RequestURI, r.Header)
				}
				u := seen(t, r, tt.uid, tt.group, tt.extra)
				answer(w, 201, u.GetName(), u.GetUID(), append(u.GetGroups(), "system:authenticated"), u.GetExtra())
			})
			s := settings
			s.ForwardUID = tt.forwardUID
			v := at(transport(), base).CheckTrust(t.Context(), s)
			if v.Trust != tt.trust || v.NamesAssertedUser {
				t.Errorf("verdict %+v, want %s", v, tt.trust)
			}
			checkMessage(t, v)
			for _, part := range tt.message {
				if !strings.Contains(v.Message, part) {
					t.Errorf("message %q lacks %q", v.Message, part)
				}
			}
		})
	}
}

func checkMessage(t *testing.T, v Verdict) {
	t.Helper()
	if (v.Message == "") != (v.Trust == v1.TrustTrusted) {
		t.Errorf("%s with message %q", v.Trust, v.Message)
	}
	if n := utf8.RuneCountInString(v.Message); n > 256 {
		t.Errorf("message of %d characters", n)
	}
	for _, r := range v.Message {
		if !unicode.IsPrint(r) {
			t.Errorf("message with %U", r)
		}
	}
}

// Each probe sends fresh random values: an answer to an earlier one is no
// answer to this one.
func TestRandomValues(t *testing.T) {
	var extras, uids []string
	base := server(t, func(w http.ResponseWriter, r *http.Request) {
		u := seen(t, r, uidFlag, groupFlag, extraFlag)
		extras, uids = append(extras, u.GetExtra()[ExtraKey]...), append(uids, u.GetUID())
		// The first probe's values, always.
		answer(w, 201, u.GetName(), uids[0], u.GetGroups(), map[string][]string{ExtraKey: {extras[0]}})
	})
	s := settings
	s.ForwardUID = true
	if v := at(transport(), base).CheckTrust(t.Context(), s); v.Trust != v1.TrustTrusted {
		t.Errorf("first: %+v", v)
	}
	if v := at(transport(), base).CheckTrust(t.Context(), s); v.Trust != v1.TrustNotHonoured || !strings.Contains(v.Message, "extra") || !strings.Contains(v.Message, "uid") {
		t.Errorf("a replayed answer: %+v", v)
	}
	if extras[0] == extras[1] || uids[0] == uids[1] || len(extras[0]) < 20 || extras[0] == uids[0] {
		t.Errorf("extras %q, uids %q", extras, uids)
	}
}

func forbid(w http.ResponseWriter, who string) {
	w.WriteHeader(403)
	json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: 403, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("selfsubjectreviews.authentication.k8s.io is forbidden: User %q cannot create resource "+
			`"selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope`, who),
	})
}

// Section 7, the table of verdicts.
func TestVerdicts(t *testing.T) {
	valid := func(w http.ResponseWriter, r *http.Request, code int, change func(*user.DefaultInfo)) {
		u := seen(t, r, uidFlag, groupFlag, extraFlag).(*user.DefaultInfo)
		change(u)
		answer(w, code, u.Name, u.UID, u.Groups, u.Extra)
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    Verdict // Message is a part
	}{
		{
			"401", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401); io.WriteString(w, "x") },
			Verdict{v1.TrustRejected, "--requestheader-client-ca-file", false},
		},
		{
			"401 whose body breaks off", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "100")
				w.WriteHeader(401)
			}, Verdict{v1.TrustRejected, "401", false},
		},
		{
			"the certificate's own name", func(w http.ResponseWriter, r *http.Request) {
				answer(w, 201, "kubernetes-admin", "", []string{"system:masters"}, nil)
			}, Verdict{v1.TrustNotHonoured, `another name than the asserted one: user "kubernetes-admin", groups ["system:masters"]`, false},
		},
		{
			"the name without prefix", func(w http.ResponseWriter, r *http.Request) {
				valid(w, r, 201, func(u *user.DefaultInfo) { u.Name = Name })
			}, Verdict{v1.TrustNotHonoured, "another name", false},
		},
		{
			"nobody", func(w http.ResponseWriter, r *http.Request) { answer(w, 201, "", "", nil, nil) },
			Verdict{v1.TrustNotHonoured, `user ""`, false},
		},
		{
			"extra with another value besides", func(w http.ResponseWriter, r *http.Request) {
				valid(w, r, 201, func(u *user.DefaultInfo) { u.Extra[ExtraKey] = append(u.Extra[ExtraKey], "more") })
			}, Verdict{v1.TrustNotHonoured, "extra", false},
		},
		{
			"more groups", func(w http.ResponseWriter, r *http.Request) {
				valid(w, r, 201, func(u *user.DefaultInfo) { u.Groups = append(u.Groups, "system:authenticated", "x") })
			}, Verdict{v1.TrustTrusted, "", false},
		},
		{
			"200", func(w http.ResponseWriter, r *http.Request) { valid(w, r, 200, func(*user.DefaultInfo) {}) },
			Verdict{v1.TrustUnknown, "200", false},
		},
		{"403 that names the user", func(w http.ResponseWriter, r *http.Request) { forbid(w, "t:proxyauth-probe") }, Verdict{v1.TrustUnknown, "403", true}},
		{"403 that names another", func(w http.ResponseWriter, r *http.Request) { forbid(w, "system:anonymous") }, Verdict{v1.TrustUnknown, "403", false}},
		{"403 that names a longer one", func(w http.ResponseWriter, r *http.Request) { forbid(w, "xt:proxyauth-probe") }, Verdict{v1.TrustUnknown, "403", false}},
		{
			"403 of something else", func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(403)
				io.WriteString(w, `<html>"t:proxyauth-probe"`)
			}, Verdict{v1.TrustUnknown, "403", false},
		},
		{"404", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) }, Verdict{v1.TrustUnknown, "404", false}},
		{"500", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) }, Verdict{v1.TrustUnknown, "500", false}},
		{
			"redirect", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/elsewhere" {
					t.Error("the redirect was followed")
				}
				http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			}, Verdict{v1.TrustUnknown, "307", false},
		},
		{"no JSON", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201); io.WriteString(w, "<html>") }, Verdict{v1.TrustUnknown, "no SelfSubjectReview", false}},
		{
			"another kind", func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(201)
				io.WriteString(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1"}`)
			}, Verdict{v1.TrustUnknown, "no SelfSubjectReview", false},
		},
		{
			"endless", func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(201)
				for {
					if _, err := w.Write([]byte(strings.Repeat(" ", 1<<16))); err != nil {
						return
					}
				}
			}, Verdict{v1.TrustUnknown, "more than 1 MiB", false},
		},
		{
			"breaks off", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "100")
				w.WriteHeader(201)
			}, Verdict{v1.TrustUnknown, "got no answer", false},
		},
		{"hangs up", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, Verdict{v1.TrustUnknown, "got no answer", false}},
		{
			"a hostile name", func(w http.ResponseWriter, r *http.Request) {
				answer(w, 201, "a\r\nb\x00\u202e\u2028\x1b[31m\u0085é\u200b", "", []string{strings.Repeat("\n", 100_000)}, nil)
			}, Verdict{v1.TrustNotHonoured, `user "a\r\nb\x00\u202e\u2028\x1b[31m\u0085é\u200b"`, false},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := at(transport(), server(t, tt.handler)).CheckTrust(t.Context(), settings)
			if v.Trust != tt.want.Trust || v.NamesAssertedUser != tt.want.NamesAssertedUser || !strings.Contains(v.Message, tt.want.Message) {
				t.Errorf("verdict %+v, want %+v", v, tt.want)
			}
			checkMessage(t, v)
		})
	}
}

// The message of a 401 says which certificate was presented, whatever its names are,
// and still names both flags.
func TestRejectedNamesTheCertificate(t *testing.T) {
	for name, tt := range map[string]struct {
		certificate *x509.Certificate
		want        string
	}{
		"none":    {nil, "the proxy's certificate"},
		"a usual": {&x509.Certificate{Subject: pkix.Name{CommonName: "proxyauth"}, Issuer: pkix.Name{CommonName: "front-proxy-ca", Organization: []string{"acme"}}}, `CN "proxyauth", issuer "CN=front-proxy-ca,O=acme"`},
		"a long":  {&x509.Certificate{Subject: pkix.Name{CommonName: strings.Repeat("é", 300)}, Issuer: pkix.Name{CommonName: strings.Repeat("i", 5000)}}, `"...,`},
		"an odd":  {&x509.Certificate{Subject: pkix.Name{CommonName: "a\"\n\x1b[2J"}}, `CN "a\"\n\x1b[2J"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := at(transport(), server(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
			s.Presented = tt.certificate
			v := s.CheckTrust(t.Context(), settings)
			if v.Trust != v1.TrustRejected || !strings.Contains(v.Message, tt.want) ||
				!strings.Contains(v.Message, "--requestheader-client-ca-file") || !strings.HasSuffix(v.Message, "--requestheader-allowed-names lacks the CN") {
				t.Errorf("%+v, want %s", v, tt.want)
			}
			checkMessage(t, v)
		})
	}
}

func FuzzJudge(f *testing.F) {
	f.Add([]byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"t:proxyauth-probe","groups":["g:proxyauth-probe"]}}}`))
	f.Add([]byte(`{"kind":"Status","message":"User \"t:proxyauth-probe\" cannot"}`))
	asserted, refused := identity.Forward(probeIdentity(), settings)
	if refused != nil {
		f.Fatal(refused)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v := judge(body, asserted)
		if v.Trust == v1.TrustTrusted {
			t.Error("trusted without the random value")
		}
		checkMessage(t, v)
		if v := forbidden(body, asserted); v.Trust != v1.TrustUnknown {
			t.Errorf("403: %+v", v)
		}
	})
}
