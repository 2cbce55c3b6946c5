package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/jsonlines"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// APIServer is a running kube-apiserver.
type APIServer struct {
	// URL is https://127.0.0.1:<port>; on a node its address.
	URL string
	// Host is the same without the scheme.
	Host string
	PKI  *PKI
	// Kubeconfig is a file with the administrator's client certificate.
	Kubeconfig string

	dir     string
	audit   *jsonlines.File[auditv1.Event]
	admin   *pki.KeyPair
	etcdURL string
	ownEtcd *Etcd
	binary  string
	args    []string
	env     []string
	proc    *process.Process

	namespaces *process.Namespaces
}

// thriftyServer has a server of the tests take less CPU time. It lives for seconds, so
// it collects garbage only when it has much; and many of them share few cores, so that
// idle threads which look for work take it from others.
var thriftyServer = []string{"GOGC=800", "GOMEMLIMIT=768MiB", "GOMAXPROCS=1"}

// StartAPIServer starts an apiserver with its files below dir, and an etcd
// when the options name none, and waits until RBAC's default roles are usable.
func StartAPIServer(ctx context.Context, dir string, o Options) (*APIServer, error) {
	binary, err := realtools.Path(ctx, cmp.Or(o.APIServer, realtools.KubeAPIServer), nil)
	if err != nil {
		return nil, err
	}
	var own *Etcd
	if o.Etcd == nil {
		if own, err = startEtcdIn(ctx, dir, o.namespaces()); err != nil {
			return nil, err
		}
		o.Etcd = own
	}
	a, err := startAPIServer(ctx, binary, dir, o)
	if err != nil {
		if own != nil {
			own.Stop()
		}
		return nil, err
	}
	a.ownEtcd = own
	return a, nil
}

func startAPIServer(ctx context.Context, binary, dir string, o Options) (*APIServer, error) {
	if o.PKI == nil {
		var err error
		if o.PKI, err = NewPKI(); err != nil {
			return nil, err
		}
	}
	if o.RequestHeader == nil {
		o.RequestHeader = o.PKI.DefaultRequestHeader()
	}
	admin, err := o.PKI.ClientCA.Client("admin", "system:masters")
	if err != nil {
		return nil, err
	}
	prefix := o.Etcd.prefix()
	return retry(ctx, "kube-apiserver", func(ctx context.Context, attempt int) (*APIServer, *process.Process, error) {
		l := layout{dir: filepath.Join(dir, "apiserver"+filepath.Base(prefix)+"-"+strconv.Itoa(attempt))}
		l.audit, l.kubeconfig = l.path("audit.log"), l.path("admin.kubeconfig")
		if err := os.MkdirAll(l.dir, 0o700); err != nil {
			return nil, nil, err
		}
		args, err := l.writeFiles(o)
		if err != nil {
			return nil, nil, err
		}
		port, err := process.FreePort()
		if err != nil {
			return nil, nil, err
		}
		a := &APIServer{
			Host: net.JoinHostPort(o.address(), strconv.Itoa(port)), PKI: o.PKI, Kubeconfig: l.kubeconfig,
			dir: l.dir, etcdURL: o.Etcd.URL, audit: jsonlines.Open[auditv1.Event](l.audit), admin: admin, binary: binary,
			args: append(append([]string{
				"--secure-port=" + strconv.Itoa(port),
				"--etcd-servers=" + o.Etcd.URL, "--etcd-prefix=" + prefix,
			}, args...), o.ExtraArgs...),
			env:        append(append(cleanEnv(l.dir), thriftyServer...), o.Env...),
			namespaces: o.namespaces(),
		}
		a.URL = "https://" + a.Host
		if err := a.writeKubeconfig(); err != nil {
			return nil, nil, err
		}
		err = a.launch(ctx)
		return a, a.proc, err
	})
}

// launch starts the process and waits until it is ready.
func (a *APIServer) launch(ctx context.Context) error {
	proc, err := process.Start(process.Options{
		Path: a.binary, Args: a.args, Env: a.env, Dir: a.dir, LogFile: filepath.Join(a.dir, "log"),
		Namespaces: a.namespaces,
	})
	if err != nil {
		return err
	}
	a.proc = proc
	client := a.HTTPClient(a.admin)
	defer client.CloseIdleConnections()
	if err := poll(ctx, proc, func(ctx context.Context) error { return getOK(ctx, client, a.URL+"/readyz") }); err != nil {
		return err
	}
	return poll(ctx, proc, a.rbacReady)
}

// Stop ends the apiserver, and the etcd that was started for it.
func (a *APIServer) Stop() {
	a.proc.Stop(5 * time.Second)
	if a.ownEtcd != nil {
		a.ownEtcd.Stop()
	}
}

// Suspend ends the apiserver process alone: an apiserver that is down.
// Resume starts it again on the same port with the same data.
func (a *APIServer) Suspend() { a.proc.Stop(5 * time.Second) }

// Resume starts a suspended apiserver; extra arguments are added for good,
// which is how an operator changes flags.
func (a *APIServer) Resume(ctx context.Context, extraArgs ...string) error {
	a.args = append(a.args, extraArgs...)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := a.launch(ctx); err != nil {
		return fmt.Errorf("starting kube-apiserver again: %w; its last lines:\n%s", err, a.proc.LogTail(25))
	}
	return nil
}

// DropArgs takes the arguments with that prefix away from the next Resume on,
// and returns them, for a later Resume that gives them back.
func (a *APIServer) DropArgs(prefix string) (dropped []string) {
	a.args = slices.DeleteFunc(a.args, func(arg string) bool {
		if !strings.HasPrefix(arg, prefix) {
			return false
		}
		dropped = append(dropped, arg)
		return true
	})
	return dropped
}

// PID is the process id.
func (a *APIServer) PID() int { return a.proc.PID() }

// EtcdURL is the client URL of its etcd, for another server that keeps its own
// objects there.
func (a *APIServer) EtcdURL() string { return a.etcdURL }

// Log is what the apiserver has logged.
func (a *APIServer) Log() []byte { return a.proc.Log() }

// Dir holds the files of the apiserver, front-proxy.ca among them: the
// request-header CA bundle, which it re-reads when it changes.
func (a *APIServer) Dir() string { return a.dir }

// AdminConfig is the configuration of a client that may do everything.
func (a *APIServer) AdminConfig() *rest.Config { return a.ClientConfig(a.admin) }

// ClientConfig is the configuration of a client with that certificate; nil is
// a client without one.
func (a *APIServer) ClientConfig(pair *pki.KeyPair) *rest.Config {
	c := &rest.Config{
		Host: a.URL,
		// Tests do not wait for client-side rate limits.
		QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: a.PKI.ServerCA.PEM,
		},
	}
	if a.namespaces != nil {
		c.Dial = a.namespaces.DialContext
	}
	if pair != nil {
		c.CertData, c.KeyData = pair.CertPEM, pair.KeyPEM
	}
	return c
}

// HTTPClient is a plain client, with a connection pool of its own, that
// presents that certificate; nil presents none.
func (a *APIServer) HTTPClient(pair *pki.KeyPair) *http.Client {
	cfg := &tls.Config{RootCAs: a.PKI.ServerCA.Pool(), MinVersion: tls.VersionTLS12}
	if pair != nil {
		// tls.Config.Certificates would be withheld when the server's list of
		// acceptable CAs does not name the issuer, and the request would go
		// out anonymous: this form always presents it.
		certificate := pair.TLS()
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: cfg, ForceAttemptHTTP2: true, DialContext: a.namespaces.DialContext,
	}}
}

// FrontProxy issues a certificate that the default request-header settings
// trust: the dedicated CA, the allowed name.
func (a *APIServer) FrontProxy() (*pki.KeyPair, error) {
	return a.PKI.FrontProxyCA.Client(FrontProxyName)
}
