package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/jsonlines"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
)

// Proxy is a running proxy.
type Proxy struct {
	// URL is https://127.0.0.1:<port>, Host the same without the scheme.
	URL, Host string
	// Health is http://127.0.0.1:<port> of proxyauth_health.
	Health string
	// Admin is the address of the admin API as Caddy's commands take it.
	Admin string
	// Directory holds the manifests.
	Directory string
	// CA signed the proxy's certificate.
	CA *pki.CA

	options      Options
	dir          string
	binary       string
	placeholders map[string]string
	log          *jsonlines.File[Entry]
	proc         *process.Process
}

const startTimeout = 60 * time.Second

// startAttempts is how often a start is repeated when a port was taken between
// the choice and the listen.
const startAttempts = 5

// New builds the product when needed and starts it with its files below dir.
func New(ctx context.Context, dir string, o Options) (*Proxy, error) {
	file, err := Binary(ctx)
	if err != nil {
		return nil, err
	}
	if o.CA == nil {
		if o.CA, err = pki.NewCA("proxy-ca"); err != nil {
			return nil, err
		}
	}
	p := &Proxy{CA: o.CA, options: o, dir: dir, binary: file, Directory: filepath.Join(dir, "clusters.d")}
	if err := os.MkdirAll(p.Directory, 0o755); err != nil {
		return nil, fmt.Errorf("preparing the proxy: %w", err)
	}
	for name, content := range o.Manifests {
		if err := p.WriteManifest(name, content); err != nil {
			return nil, err
		}
	}
	serving, err := o.CA.Server(o.Hosts...)
	if err != nil {
		return nil, err
	}
	cert, key, err := serving.WriteFiles(dir, "proxy")
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		if p.placeholders, err = p.assign(cert, key); err != nil {
			return nil, err
		}
		if err = p.launch(ctx); err == nil {
			return p, nil
		}
		if p.proc != nil {
			err = fmt.Errorf("starting the proxy: %w; its last lines:\n%s", err, p.lastLines())
			p.proc.Kill()
		}
		if attempt == startAttempts || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
	}
}

// assign chooses the addresses of one attempt.
func (p *Proxy) assign(cert, key string) (map[string]string, error) {
	values := map[string]string{
		"cert": cert, "key": key, "ca": filepath.Join(p.dir, "ca.crt"),
		"directory": p.Directory, "log": filepath.Join(p.dir, "caddy.log"), "dir": p.dir,
	}
	if err := os.WriteFile(values["ca"], p.CA.PEM, 0o644); err != nil {
		return nil, fmt.Errorf("preparing the proxy: %w", err)
	}
	for _, name := range []string{"port", "health", "admin", "port2", "port3"} {
		port, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		values[name] = strconv.Itoa(port)
	}
	p.log = jsonlines.Open[Entry](values["log"])
	p.Host = "127.0.0.1:" + values["port"]
	p.URL = "https://" + p.Host
	p.Health = "http://127.0.0.1:" + values["health"]
	p.Admin = "127.0.0.1:" + values["admin"]
	if p.options.AdminSocket {
		// Test folders can be too deep for the 108 bytes of a socket's path.
		short, err := os.MkdirTemp("", "pa")
		if err != nil {
			return nil, fmt.Errorf("preparing the proxy: %w", err)
		}
		p.Admin = "unix/" + filepath.Join(short, "admin.sock")
	}
	values["admin"] = p.Admin
	return values, nil
}

// Expand fills in a Caddyfile: %{port} of the site, %{health}, %{admin},
// %{cert}, %{key}, %{ca}, %{directory}, %{log}, %{dir}, and %{port2}, %{port3}
// for further sites. All ports differ per proxy and stay over reloads.
func (p *Proxy) Expand(caddyfile string) string {
	for name, value := range p.placeholders {
		caddyfile = strings.ReplaceAll(caddyfile, "%{"+name+"}", value)
	}
	return caddyfile
}

// Value is that of a placeholder, e.g. Value("port2").
func (p *Proxy) Value(name string) string { return p.placeholders[name] }

func (p *Proxy) configFile() string { return filepath.Join(p.dir, "Caddyfile") }

func (p *Proxy) env() []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "HOME=" + p.dir,
		"XDG_DATA_HOME=" + filepath.Join(p.dir, "data"), "XDG_CONFIG_HOME=" + filepath.Join(p.dir, "config"),
		// A known race of a library does not change the exit code; what is no
		// known one fails the test (races.txt).
		"GORACE=halt_on_error=0 exitcode=0",
	}
	return append(env, p.options.Env...)
}

func (p *Proxy) launch(ctx context.Context) error {
	if err := os.WriteFile(p.configFile(), []byte(p.Expand(p.options.caddyfile())), 0o644); err != nil {
		return fmt.Errorf("writing the Caddyfile: %w", err)
	}
	proc, err := process.Start(process.Options{
		Path: p.binary, Args: []string{"run", "--config", p.configFile(), "--adapter", "caddyfile"},
		Env: p.env(), Dir: p.dir, LogFile: filepath.Join(p.dir, "output"),
		Namespaces: p.options.Namespaces,
	})
	if err != nil {
		return err
	}
	p.proc = proc
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.poll(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		c, err := p.options.Namespaces.DialContext(ctx, "tcp", p.Host)
		if err == nil {
			c.Close()
		}
		return err
	})
}

var errEnded = errors.New("the proxy has ended")

// poll asks until f returns nil.
func (p *Proxy) poll(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.proc.Done():
			return fmt.Errorf("%w with code %d", errEnded, p.proc.ExitCode())
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop sends SIGTERM and returns the exit code; what does not end in time is
// killed and gives -1.
func (p *Proxy) Stop() int {
	p.proc.Stop(p.options.GracePeriod + p.options.ShutdownDelay + 40*time.Second)
	return p.proc.ExitCode()
}

// Signal sends a signal.
func (p *Proxy) Signal(sig syscall.Signal) error { return p.proc.Signal(sig) }

// Kill ends the proxy without notice.
func (p *Proxy) Kill() { p.proc.Kill() }

// Restart starts a stopped or killed proxy again, same addresses and files.
func (p *Proxy) Restart(ctx context.Context) error { return p.launch(ctx) }

// Done is closed when the proxy has ended.
func (p *Proxy) Done() <-chan struct{} { return p.proc.Done() }

// ExitCode waits for the end.
func (p *Proxy) ExitCode() int { return p.proc.ExitCode() }

// PID is the process id.
func (p *Proxy) PID() int { return p.proc.PID() }

// Reload changes options and applies them with `caddy reload`.
func (p *Proxy) Reload(ctx context.Context, change func(*Options)) error {
	if change != nil {
		change(&p.options)
	}
	if err := os.WriteFile(p.configFile(), []byte(p.Expand(p.options.caddyfile())), 0o644); err != nil {
		return fmt.Errorf("writing the Caddyfile: %w", err)
	}
	r, err := p.Command(ctx, "reload", "--config", p.configFile(), "--adapter", "caddyfile", "--address", p.Admin, "--force")
	if err != nil {
		return err
	}
	if r.ExitCode != 0 {
		return fmt.Errorf("reloading: exit code %d: %s", r.ExitCode, r.Stderr)
	}
	return nil
}

// Result is how a command ended.
type Result struct {
	Stdout, Stderr string
	ExitCode       int
}

// Command runs another command of the program, e.g. proxyauth status.
func (p *Proxy) Command(ctx context.Context, args ...string) (Result, error) {
	cmd := exec.CommandContext(ctx, p.binary, args...)
	cmd.Env, cmd.Dir = append(process.ThriftyCommand(), p.env()...), p.dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := p.options.Namespaces.Do(cmd.Run)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{}, fmt.Errorf("running caddy %q: %w", args, err)
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: cmd.ProcessState.ExitCode()}, nil
}

// WriteManifest puts a file into the directory, whole: by rename, as a careful
// editor does.
func (p *Proxy) WriteManifest(name, content string) error {
	tmp := filepath.Join(p.dir, name+".new")
	if err := os.WriteFile(tmp, []byte(content), 0o644); err != nil {
		return fmt.Errorf("writing a manifest: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(p.Directory, name)); err != nil {
		return fmt.Errorf("writing a manifest: %w", err)
	}
	return nil
}

// RemoveManifest removes a file from the directory.
func (p *Proxy) RemoveManifest(name string) error {
	return os.Remove(filepath.Join(p.Directory, name))
}

// Placeholders are all values of Expand.
func (p *Proxy) Placeholders() map[string]string { return maps.Clone(p.placeholders) }

// Client is an HTTP client with a connection pool of its own that trusts the
// proxy; protocol is "h1" or "h2".
func (p *Proxy) Client(protocol string) *http.Client {
	t := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: p.CA.Pool(), MinVersion: tls.VersionTLS12},
		DialContext:     p.options.Namespaces.DialContext,
	}
	t.ForceAttemptHTTP2 = protocol == "h2"
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ClusterURL is the URL of a cluster in the path form.
func (p *Proxy) ClusterURL(namespace, name string) string {
	return p.URL + "/clusters/" + namespace + "/" + name
}
