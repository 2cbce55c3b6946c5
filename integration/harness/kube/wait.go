package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
)

// errExited marks a server that ended during its start, as it does when its
// port is taken.
var errExited = errors.New("the process ended during its start")

// retry starts a server until an attempt does not end by itself.
func retry[T any](ctx context.Context, name string, start func(context.Context, int) (T, *process.Process, error)) (T, error) {
	var zero T
	for attempt := 1; ; attempt++ {
		attemptCtx, cancel := context.WithTimeout(ctx, startTimeout)
		server, proc, err := start(attemptCtx, attempt)
		cancel()
		if err == nil {
			return server, nil
		}
		if proc != nil {
			err = fmt.Errorf("starting %s: %w; its last lines:\n%s", name, err, proc.LogTail(25))
			proc.Kill()
		} else {
			err = fmt.Errorf("starting %s: %w", name, err)
		}
		if attempt == startAttempts || !errors.Is(err, errExited) || ctx.Err() != nil {
			return zero, err
		}
	}
}

// poll asks until ready returns nil, the process ends or the context does.
func poll(ctx context.Context, proc *process.Process, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			if proc.Exited() {
				// Another server answered on that port.
				return errExited
			}
			return nil
		}
		select {
		case <-proc.Done():
			return fmt.Errorf("%w (exit code %d)", errExited, proc.ExitCode())
		case <-ctx.Done():
			return fmt.Errorf("waiting until it is ready: %w (last: %w)", ctx.Err(), err)
		case <-time.After(25 * time.Millisecond):
		}
	}
}

func getOK(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	}
	return nil
}

// cleanEnv keeps settings of the caller (proxies, KUBECONFIG, ETCD_*) away
// from the servers.
func cleanEnv(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8"}
}
