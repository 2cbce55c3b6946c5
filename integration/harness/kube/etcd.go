package kube

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// Etcd is a running etcd with one member.
type Etcd struct {
	// URL is the client URL, without TLS: it listens on 127.0.0.1 only.
	URL string

	proc *process.Process // nil for one that another process started
	user string           // random: other processes may use the same etcd
	next atomic.Int64
}

// EtcdVariable names the URL of an etcd that runs already and serves all tests,
// each apiserver under a prefix of its own: cmd/testrun sets it.
const EtcdVariable = "PROXYAUTH_TEST_ETCD"

// startAttempts is how often a server is started anew when another process
// took its port between the choice and the listen.
const startAttempts = 5

// startTimeout bounds one attempt; loaded machines are slow.
const startTimeout = 90 * time.Second

// StartEtcd starts etcd with its data below dir, or takes the one that
// EtcdVariable names.
func StartEtcd(ctx context.Context, dir string) (*Etcd, error) { return startEtcdIn(ctx, dir, nil) }

// StartBase starts what several apiservers of a test can share: an etcd, which atEnd
// is given the end of, and their authorities.
func StartBase(ctx context.Context, dir string, atEnd func(stop func())) (*Etcd, *PKI, error) {
	authorities, err := NewPKI()
	if err != nil {
		return nil, nil, err
	}
	etcd, err := StartEtcd(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	atEnd(etcd.Stop)
	return etcd, authorities, nil
}

func startEtcdIn(ctx context.Context, dir string, ns *process.Namespaces) (*Etcd, error) {
	// A node's namespaces do not reach the etcd outside.
	if url := os.Getenv(EtcdVariable); url != "" && ns == nil {
		return &Etcd{URL: url, user: rand.Text()}, nil
	}
	binary, err := realtools.Path(ctx, realtools.Etcd, nil)
	if err != nil {
		return nil, err
	}
	return retry(ctx, "etcd", func(ctx context.Context, attempt int) (*Etcd, *process.Process, error) {
		return startEtcd(ctx, binary, filepath.Join(dir, "etcd-"+strconv.Itoa(attempt)), ns)
	})
}

func startEtcd(ctx context.Context, binary, dir string, ns *process.Namespaces) (*Etcd, *process.Process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	client, err := process.FreePort()
	if err != nil {
		return nil, nil, err
	}
	peer, err := process.FreePort()
	if err != nil {
		return nil, nil, err
	}
	clientURL := fmt.Sprintf("http://127.0.0.1:%d", client)
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", peer)
	proc, err := process.Start(process.Options{
		Path: binary,
		Args: []string{
			"--name=test", "--data-dir=" + filepath.Join(dir, "data"),
			"--listen-client-urls=" + clientURL, "--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=test=" + peerURL,
			// Nothing here must survive a crash of the machine.
			"--unsafe-no-fsync", "--log-level=warn",
		},
		Env:        append(cleanEnv(dir), thriftyServer...),
		Dir:        dir,
		LogFile:    filepath.Join(dir, "log"),
		Namespaces: ns,
	})
	if err != nil {
		return nil, nil, err
	}
	e := &Etcd{URL: clientURL, proc: proc, user: rand.Text()}
	plain := &http.Client{Transport: &http.Transport{DialContext: ns.DialContext}}
	defer plain.CloseIdleConnections()
	return e, proc, poll(ctx, proc, func(ctx context.Context) error {
		return getOK(ctx, plain, clientURL+"/health")
	})
}

// Stop ends etcd, unless it serves other processes too. Stop the apiservers
// first: they wait for it.
func (e *Etcd) Stop() {
	if e.proc != nil {
		e.proc.Stop(5 * time.Second)
	}
}

// prefix is a part of etcd that no other apiserver uses, of this process or of
// another one that runs meanwhile.
func (e *Etcd) prefix() string {
	return fmt.Sprintf("/registry-%s-%d", e.user, e.next.Add(1))
}
