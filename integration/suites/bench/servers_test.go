package bench

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

const (
	namespace, name = "team-a", "bench"
	prefix          = "proxyauth:"
	// requestPath is what a client asks the apiserver for.
	requestPath = "/api/v1/namespaces/default/pods?limit=500"
	// answerSize is a short list.
	answerSize = 4 << 10
)

// server is a process that is loaded.
type server struct {
	name string
	*proxy.Proxy
	url string
}

// fixture is the processes and what they share.
type fixture struct {
	// proxyauth and stock write a line for each request, the bare ones do not.
	proxyauth, bareProxyauth, stock, bareStock *server
	// stockHTTP1 relays upgrades: stock reverse_proxy sends them on HTTP/2 otherwise,
	// where they fail (STR-02).
	stockHTTP1 *server
	// plain is the reverse proxy of Go's own library, in a process of its own.
	plain *plainProxy
	// token makes a token of a user.
	token func(user string) string
}

func (f *fixture) servers() []*server {
	return []*server{f.proxyauth, f.stock, f.bareProxyauth, f.bareStock}
}

func newFixture(b *testing.B) *fixture {
	b.Helper()
	serverCA, clientCA := pki.MustCA("server-ca"), pki.MustCA("front-proxy-ca")
	certificate := pki.Must(clientCA.Client("front-proxy-a"))
	upstream := startUpstream(b, serverCA, clientCA)
	idp := oidc.Start(b, oidc.Options{})
	dir := b.TempDir()
	certFile, keyFile, err := certificate.WriteFiles(dir, "client")
	if err != nil {
		b.Fatal(err)
	}
	caFile := writeFile(b, dir, "upstream-ca.crt", serverCA.PEM)

	cluster := proxy.FrontProxyCluster(namespace, name, upstream, serverCA, prefix, proxy.Authenticator(idp))
	manifests := map[string]string{"bench.yaml": proxy.Manifests(cluster,
		proxy.FrontProxySecret(namespace, name, upstream, certificate))}
	f := &fixture{token: func(user string) string {
		return idp.Token(oidc.Alice, map[string]any{"preferred_username": user, "sub": user, "exp": time.Now().Add(time.Hour).Unix()})
	}}

	start := func(name, path string, o proxy.Options) *server {
		p := proxy.Start(b, o)
		return &server{name: name, Proxy: p, url: p.URL + path + requestPath}
	}
	clusterPath := "/clusters/" + namespace + "/" + name
	f.proxyauth = start("proxyauth", clusterPath, proxy.Options{Manifests: manifests, LogLevel: "INFO"})
	f.bareProxyauth = start("proxyauth-bare", clusterPath, proxy.Options{Manifests: manifests, LogLevel: "ERROR"})
	for _, s := range []*server{f.proxyauth, f.bareProxyauth} {
		s.MustServe(b, namespace, name)
	}

	stock := strings.NewReplacer(
		"%{upstream}", upstream, "%{client_cert}", certFile, "%{client_key}", keyFile,
		"%{upstream_ca}", caFile)
	startStock := func(name, logging, versions string) *server {
		file := strings.NewReplacer("%{logging}", logging, "%{versions}", versions).Replace(stockCaddyfile)
		return start(name, "", proxy.Options{Caddyfile: stock.Replace(file)})
	}
	f.stock, f.bareStock = startStock("stock", "log", ""), startStock("stock-bare", "", "")
	f.stockHTTP1 = startStock("stock", "log", "versions 1.1")
	f.plain = startReverseProxy(b, plainConfig{Upstream: upstream, UpstreamCA: caFile, Certificate: certFile, Key: keyFile})
	return f
}

// stockCaddyfile is Caddy without the product: what the harness's own file has
// but for the handler.
const stockCaddyfile = `{
	admin %{admin}
	persist_config off
	auto_https disable_redirects
	grace_period 10s
	log {
		output file %{log} {
			roll_disabled
		}
		format json
		level INFO
	}
	servers {
		protocols h1 h2
		max_header_size 64KiB
		timeouts {
			read_header 10s
			idle 5m
		}
	}
}
https://127.0.0.1:%{port} {
	bind 127.0.0.1
	tls %{cert} %{key}
	%{logging}
	reverse_proxy %{upstream} {
		flush_interval -1
		transport http {
			tls_trust_pool file %{upstream_ca}
			tls_client_auth %{client_cert} %{client_key}
			compression off
			%{versions}
			keepalive_idle_conns_per_host 512
		}
	}
}
`

// startUpstream stands in for an apiserver at the least cost: it demands the
// client certificate, says who it was told is asking, and answers everything
// else with the same list. It returns its URL.
func startUpstream(b *testing.B, serverCA, clientCA *pki.CA) string {
	b.Helper()
	answer := []byte(`{"kind":"PodList","apiVersion":"v1","items":["` + strings.Repeat("x", answerSize) + `"]}`)
	length := strconv.Itoa(len(answer))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", review)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "no client certificate", http.StatusUnauthorized)
			return
		}
		if r.Header.Get("Upgrade") != "" {
			echo(w)
			return
		}
		h := w.Header()
		if r.URL.Query().Get("watch") != "" {
			h["Content-Type"] = []string{"application/json"}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		h["Content-Type"], h["Content-Length"] = []string{"application/json"}, []string{length}
		h["Cache-Control"], h["Audit-Id"] = []string{"no-cache, private"}, []string{"3b0a5c1e-52f7-4c0f-8d8e-5a0a0a3f5b11"}
		_, _ = w.Write(answer)
	})
	s := httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{pki.Must(serverCA.Server()).TLS()},
		ClientCAs:    clientCA.Pool(),
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS12,
	}
	s.StartTLS()
	b.Cleanup(s.Close)
	return s.URL
}

// echo answers an upgrade and sends back what comes.
func echo(w http.ResponseWriter) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusHTTPVersionNotSupported)
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
}

// review answers the trust probe.
func review(w http.ResponseWriter, r *http.Request) {
	user := authenticationv1.UserInfo{
		Username: r.Header.Get("X-Remote-User"), Groups: r.Header.Values("X-Remote-Group"),
		Extra: map[string]authenticationv1.ExtraValue{},
	}
	for key, values := range r.Header {
		if escaped, ok := strings.CutPrefix(key, "X-Remote-Extra-"); ok {
			user.Extra[strings.ToLower(strings.ReplaceAll(escaped, "%2f", "/"))] = values
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
		Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: user},
	})
}

// memory is what a process has allocated since its start.
type memory struct{ Mallocs, TotalAlloc uint64 }

func (s *server) memory(b *testing.B) memory {
	b.Helper()
	code, body, err := s.AdminDo(b.Context(), http.MethodGet, "/debug/vars", nil)
	if err != nil || code != http.StatusOK {
		b.Fatalf("asking for the allocations: %d, %v", code, err)
	}
	var vars struct {
		Memory memory `json:"memstats"`
	}
	if err := json.Unmarshal([]byte(body), &vars); err != nil {
		b.Fatal(err)
	}
	return vars.Memory
}

// profile saves what the process does for some seconds, and all it has
// allocated since its start.
func (s *server) profile(b *testing.B, dir, protocol string, duration time.Duration) {
	for kind, path := range map[string]string{
		"cpu":    fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(duration.Seconds())),
		"allocs": "/debug/pprof/allocs",
	} {
		code, body, err := s.AdminDo(b.Context(), http.MethodGet, path, nil)
		if err != nil || code != http.StatusOK {
			b.Errorf("profiling: %d, %v", code, err)
			return
		}
		writeFile(b, dir, fmt.Sprintf("%s-%s.%s.pprof", protocol, s.name, kind), []byte(body))
	}
}
