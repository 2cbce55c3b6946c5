package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// hubQPS and hubBurst bound what one client asks of the hub: a thousand
	// objects start within seconds, and no more than that comes at once.
	hubQPS   = 200
	hubBurst = 1000
	// answerLimit is how long a request other than a watch waits for an answer
	// to begin.
	answerLimit = 10 * time.Second
)

// LoadConfig returns how the hub is asked: the kubeconfig at that
// path, or without one the configuration of the pod this runs in, or else the
// files that KUBECONFIG names. It asks nothing.
func LoadConfig(kubeconfig string) (*rest.Config, error) {
	config, err := findConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "proxyauthk8s/" + version.String() // for the audit log of the hub
	config.QPS, config.Burst = hubQPS, hubBurst
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &answerTimeout{next: next, limit: answerLimit} })
	return config, nil
}

func findConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return loadFiles([]string{kubeconfig}, "the kubeconfig")
	}
	config, err := rest.InClusterConfig()
	switch {
	case err == nil:
		return config, nil
	case !errors.Is(err, rest.ErrNotInCluster):
		return nil, fmt.Errorf("reading the configuration of the pod: %w", err)
	}
	files := filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	if len(files) == 0 {
		return nil, errors.New("no configuration of the hub: this is no pod of a cluster, KUBECONFIG is not set, and no kubeconfig is given")
	}
	return loadFiles(files, clientcmd.RecommendedConfigPathEnvVar)
}

// loadFiles merges kubeconfigs as kubectl does. A parser's error is not passed
// on: it may quote the file, which holds credentials.
func loadFiles(files []string, what string) (*rest.Config, error) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) && len(files) > 1 {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", what, err)
		}
		if _, err := clientcmd.Load(text); err != nil {
			return nil, fmt.Errorf("reading %s: %s is no kubeconfig", what, file)
		}
	}
	merged, err := (&clientcmd.ClientConfigLoadingRules{Precedence: files}).Load()
	if err != nil {
		return nil, fmt.Errorf("reading %s: the files cannot be merged", what)
	}
	config, err := clientcmd.NewDefaultClientConfig(*merged, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	return config, nil
}

// answerTimeout ends a request whose answer does not begin in time. It leaves
// watches alone.
type answerTimeout struct {
	next  http.RoundTripper
	limit time.Duration
}

var errNoAnswer = errors.New("no answer in time")

// RoundTrip sends a request.
func (t *answerTimeout) RoundTrip(r *http.Request) (*http.Response, error) {
	if watching := r.URL.Query().Get("watch"); watching == "true" || watching == "1" {
		return t.next.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(t.limit, func() { cancel(errNoAnswer) })
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if errors.Is(context.Cause(ctx), errNoAnswer) {
			err = fmt.Errorf("%w after %v", errNoAnswer, t.limit)
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &cancellingBody{resp.Body, cancel}
	return resp, nil
}

// WrappedRoundTripper lets client-go look through.
func (t *answerTimeout) WrappedRoundTripper() http.RoundTripper { return t.next }

type cancellingBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close ends the request.
func (b *cancellingBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
