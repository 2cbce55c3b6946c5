package hostile

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
)

// session keeps the latest ticket of a server.
type session struct {
	tls.ClientSessionCache
	came chan struct{}
	once sync.Once
}

func newSession() *session {
	return &session{ClientSessionCache: tls.NewLRUClientSessionCache(1), came: make(chan struct{})}
}

func (s *session) Put(key string, state *tls.ClientSessionState) {
	if state == nil {
		return // a used ticket serves again
	}
	s.ClientSessionCache.Put(key, state)
	s.once.Do(func() { close(s.came) })
}

// unanswered is the socket of a client whom no answer of the server reaches before
// release is closed: so the handshake stays incomplete, and all that the client
// sends is early data. It keeps these datagrams, as an attacker does who listens.
type unanswered struct {
	net.PacketConn
	release chan struct{}
	answer  func() // closes release, once
	mu      sync.Mutex
	sent    [][]byte
}

func newUnanswered(c net.PacketConn) *unanswered {
	u := &unanswered{PacketConn: c, release: make(chan struct{})}
	u.answer = sync.OnceFunc(func() { close(u.release) })
	return u
}

func (u *unanswered) ReadFrom(p []byte) (int, net.Addr, error) {
	n, from, err := u.PacketConn.ReadFrom(p)
	if err == nil {
		<-u.release
	}
	return n, from, err
}

// SetReadDeadline is called at the end of a connection, which waits for ReadFrom.
func (u *unanswered) SetReadDeadline(d time.Time) error {
	u.answer()
	return u.PacketConn.SetReadDeadline(d)
}

func (u *unanswered) WriteTo(p []byte, to net.Addr) (int, error) {
	select {
	case <-u.release:
	default:
		u.mu.Lock()
		u.sent = append(u.sent, slices.Clone(p))
		u.mu.Unlock()
	}
	return u.PacketConn.WriteTo(p, to)
}

// replay sends the recorded datagrams from another socket.
func (u *unanswered) replay(t *testing.T, px *proxy.Proxy) {
	t.Helper()
	conn, err := net.Dial("udp", px.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, datagram := range u.sent {
		if _, err := conn.Write(datagram); err != nil {
			t.Fatal(err)
		}
	}
}

// count is how many audit lines match.
func count(t *testing.T, px *proxy.Proxy, match func(proxy.Entry) bool) (n int) {
	t.Helper()
	all, err := px.Audit()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if match(e) {
			n++
		}
	}
	return n
}

// Section 3, row 2: what comes before the handshake is complete can be the replay
// of an attacker who recorded it. Only GET and HEAD are relayed then; any other
// request is a 425, and goes to no apiserver, however often it is replayed.
func testEarlyData(t *testing.T, px *proxy.Proxy) {
	up := shared.ups[fpH2]
	resume := newSession()
	first := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{Sessions: resume})
	if a := first.Do(t, call{method: "POST", cluster: fpH2, path: "/api/first"}.asAlice().h2(px), nil); a.Code != http.StatusOK {
		t.Fatalf("without early data: %d %s", a.Code, a.Body)
	}
	select {
	case <-resume.came:
	case <-time.After(rawclient.Timeout):
		t.Fatal("no session ticket came")
	}
	first.Close()

	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "GET", "HEAD"} {
		t.Run(method, func(t *testing.T) {
			early := method == "GET" || method == "HEAD"
			path := "/api/early-" + method
			// A refusal before the cluster is known has no path in its audit line.
			decided := func(e proxy.Entry) bool {
				return e.Text("verb") == method && (early && e.Text("path") == path || !early && e.Text("reason") == "early_data")
			}
			var socket *unanswered
			up.Reset()
			conn := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{Sessions: resume, Packets: func(c net.PacketConn) net.PacketConn {
				socket = newUnanswered(c)
				return socket
			}})
			s, err := conn.Open(call{method: method, cluster: fpH2, path: path}.asAlice().h2(px), true)
			if err != nil {
				t.Fatal(err)
			}
			// The proxy has decided, while the client knows nothing of the server.
			px.MustAudit(t, decided)
			if state := conn.Conn.ConnectionState(); state.TLS.HandshakeComplete {
				t.Fatal("the handshake is complete")
			}
			socket.answer()
			a, err := s.Answer()
			if err != nil {
				t.Fatal(err)
			}
			if !conn.Conn.ConnectionState().Used0RTT {
				t.Error("the server did not accept early data")
			}
			if early {
				if a.Code != http.StatusOK {
					t.Errorf("code %d: %s", a.Code, a.Body)
				}
				up.Only(t)
			} else {
				wantStatus(t, a, http.StatusTooEarly, "may be a replay")
				up.None(t)
				// What the client sends again, as it is told, is relayed.
				if a := conn.Do(t, call{method: method, cluster: fpH2, path: "/api/again"}.asAlice().h2(px), nil); a.Code != http.StatusOK {
					t.Errorf("sent again: %d %s", a.Code, a.Body)
				}
				up.Only(t)
			}
			conn.Close()
			up.Reset()
			// A server forgets a closed connection after some time.
			for deadline := time.Now().Add(rawclient.Timeout); count(t, px, decided) < 2; time.Sleep(100 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the replay did not come to the proxy")
				}
				socket.replay(t, px)
			}
			if !early {
				up.None(t)
			}
		})
	}
}

// RFC 8470: a load balancer that ends TLS says of early data that it is; a write is
// then a 425, over every protocol.
func TestRow2EarlyDataOfALoadBalancer(t *testing.T) {
	everyWay(t, shared.px, func(t *testing.T, w way) {
		w.refused(t, call{method: "POST", path: "/api", body: []byte("{}")}.asAlice().with("Early-Data: 1"), http.StatusTooEarly, "may be a replay")
		w.relayed(t, call{path: "/api"}.asAlice().with("Early-Data: 1"))
	})
}
