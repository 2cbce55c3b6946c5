package identity

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ID-5: a sandbox is added to the policy that is there.
func TestSandbox(t *testing.T) {
	h := http.Header{"Content-Security-Policy": {"default-src 'none'"}, "X-Content-Type-Options": {"sniff"}}
	Sandbox(h)
	want := http.Header{"Content-Security-Policy": {"default-src 'none'", "sandbox"}, "X-Content-Type-Options": {"nosniff"}}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// ID-5: which headers of an answer go.
func TestScrubAnswer(t *testing.T) {
	kept := http.Header{"Content-Type": {"text/html"}, "Etag": {"x"}, "Alt-Svcs": {"x"}, "Nelly": {"x"}, "Warning": {"299 - x"}}
	tests := []struct {
		name string
		keep bool
		in   http.Header
		want http.Header
	}{
		{"what stays", false, kept.Clone(), kept.Clone()},
		{"origin headers in any spelling", true, http.Header{
			"Strict-Transport-Security": {"max-age=0"}, "clear-site-data": {`"*"`}, "NEL": {"{}"}, "Nel": {"{}"},
			"Report-To": {"{}"}, "Reporting-Endpoints": {"a"}, "Service_Worker-Allowed": {"/"}, "Alt-Svc": {"clear"},
			"Alt.Svc": {"clear"}, "Set-Cookie2": {"a=b"}, "Etag": {"x"},
		}, http.Header{"Etag": {"x"}}},
		{"orders to a server in front", true, http.Header{
			"X-Accel-Redirect": {"/clusters/team-b/prod/api"}, "X_Accel.Expires": {"1"}, "X-Sendfile": {"/etc/passwd"},
			"X-Lighttpd-Send-File": {"/etc/passwd"}, "X-Reproxy-Url": {"http://127.0.0.1/"}, "X-Accel-Buffering": {"no"},
		}, http.Header{"X-Accel-Buffering": {"no"}}},
		{"cookies", false, http.Header{"Set-Cookie": {"a=b"}, "set-cookie": {"c=d"}}, http.Header{}},
		{"kept cookies lose their domain", true,
			http.Header{"Set-Cookie": {"a=b; Path=/; DOMAIN = example.test ;Secure", "c=domain", "d=e;domain"}},
			http.Header{"Set-Cookie": {"a=b; Path=/;Secure", "c=domain", "d=e"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ScrubAnswer(tt.in, tt.keep)
			if diff := cmp.Diff(tt.want, tt.in); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

// ID-5: the bearer goes wherever else it stands.
func TestRemoveBearer(t *testing.T) {
	const long = "eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl"
	tests := []struct {
		name, bearer, value string
		gone                bool
	}{
		{"whole value", long, long, true},
		{"after a scheme", long, "Bearer " + long, true},
		{"inside of a value", long, `user=a; token="` + long + `"`, true},
		{"a piece of it", long, long[:20], false},
		{"another token", long, "x" + long[1:], false},
		{"short, whole value", "json", "json", true},
		{"short, after a scheme", "json", "Bearer  json ", true},
		{"short, by chance", "json", "application/json", false},
		{"none", "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{"X-Forwarded-Access-Token": {tt.value}, "Accept": {"*/*"}}
			RemoveBearer(h, tt.bearer)
			if _, stays := h["X-Forwarded-Access-Token"]; stays == tt.gone || len(h["Accept"]) != 1 {
				t.Errorf("headers %v, gone must be %t", h, tt.gone)
			}
		})
	}
}

// ID-5: what a gateway adds to a list stays, whatever the client wrote there.
func TestRemoveBearerKeepsTheRestOfAList(t *testing.T) {
	const bearer = "eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl"
	h := http.Header{
		"X-Forwarded-For": {bearer + ", 203.0.113.9"}, "Via": {"1.1 gateway", "1.1 " + bearer}, "X-Token": {bearer},
	}
	RemoveBearer(h, bearer)
	want := http.Header{"X-Forwarded-For": {"203.0.113.9"}, "Via": {"1.1 gateway"}}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}
