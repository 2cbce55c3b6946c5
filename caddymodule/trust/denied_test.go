package trust

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Section 15, denied_targets: neither the relay, upgrades included, nor any
// question to the apiserver opens a connection to a denied address, here that of
// localhost, and none says which address it is.
func TestNothingConnectsToADeniedTarget(t *testing.T) {
	target, roots, _ := refusing(t)
	_, port, err := net.SplitHostPort(target.Address)
	if err != nil {
		t.Fatal(err)
	}
	target.Address = net.JoinHostPort("localhost", port)
	for _, denied := range []string{"loopback", "localhost"} {
		policy, err := egress.Parse([]string{denied})
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []v1.UpstreamMode{v1.ModeFrontProxy, v1.ModePassthrough} {
			spec := &k8swatch.Cluster{
				Enabled: true, Mode: mode, Probe: true, TargetKnown: true, Target: target, DeniedTargets: policy, CA: roots, ServerName: "example.com",
				FrontProxy: certificate(), ClientCert: certificate(),
			}
			relay := Connect(spec, nil)
			t.Cleanup(relay.Retire)
			for _, upgrade := range []string{"", "websocket"} {
				r := httptest.NewRequest(http.MethodGet, "https://"+target.Host+"/version", nil)
				if upgrade != "" {
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", upgrade)
				}
				if _, err := relay.RoundTrip(r); !errors.Is(err, egress.ErrDenied) {
					t.Errorf("%s, upgrade %q: %v", mode, upgrade, err)
				}
			}
			c := New(spec, relay, nil, boundedjson.NewReader(1), nil)
			t.Cleanup(func() { c.Retire(nil) })
			for question, message := range map[string]string{
				"front proxy": c.probe(t.Context()).Message, "client_cert": c.probeClientCert(t.Context()).Message, "reach": c.probeReach(t.Context()).Message,
			} {
				if !strings.Contains(message, "an address to which this proxy does not connect (denied_targets)") || strings.Contains(message, "127.0.0.1") {
					t.Errorf("%s, %s, %s: %q", denied, mode, question, message)
				}
			}
		}
	}
}
