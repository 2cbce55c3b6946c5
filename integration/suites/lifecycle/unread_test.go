package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
)

// STREAM-1: a client that reads nothing keeps no stream of a cluster that is gone.
func TestSTREAM1EndsUnread(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	px.MustServe(t, namespace, "cluster-a")
	waitCode(t, px, "cluster-a", 200)
	const streaming = "reverseproxy.(*Handler).ServeHTTP"

	c := session{px, token()}
	watch := c.dial(t)
	if err := watch.Send(rawclient.Request("GET", target("cluster-a", floodPath), px.Host, "Authorization: Bearer "+c.bearer)); err != nil {
		t.Fatal(err)
	}
	h2 := rawclient.MustDialUnreadH2(t, px.Host, px.CA.Pool())
	if _, err := h2.Open(rawclient.Fields("GET", px.Host, target("cluster-a", floodPath), rawclient.Field{Name: "authorization", Value: "Bearer " + c.bearer}), true); err != nil {
		t.Fatal(err)
	}
	upgrades := []*rawclient.Conn{
		c.spdy(t, target("cluster-a", execPath), spdy).Conn,
		c.webSocket(t, target("cluster-a", execPath), "v5.channel.k8s.io", ws).Conn,
	}
	for _, u := range upgrades {
		// What is sent comes back until nothing moves any more.
		_ = u.SetWriteDeadline(time.Now().Add(3 * time.Second))
		frame := make([]byte, 64<<10)
		for {
			if _, err := u.Write(frame); err != nil {
				break
			}
		}
	}
	eventually(t, "all are under way", patience, func() error {
		if n := countGoroutines(t, px, streaming); n < 4 {
			return fmt.Errorf("%d of 4", n)
		}
		return nil
	})
	if err := px.RemoveManifest("a.yaml"); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, "nothing is left of them", patience, func() error {
		if n := countGoroutines(t, px, streaming); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	t.Logf("after %s", took.Round(time.Millisecond))
	if took > streamEnd+time.Second {
		t.Error("that is too late")
	}
}
