package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// The cluster's name behind the proxy, and the prefix of its users.
const (
	namespace = "team-a"
	name      = "demo"
	prefix    = "proxyauth:"
)

// demo is the programs that run, and where their files are.
type demo struct {
	out  io.Writer
	root string // of the repository
	dir  string // temporary
	self string // this program, for the exec plugin

	caddy, kubectl string // programs

	idp       *oidc.Provider
	apiserver *kube.APIServer
	proxy     *process.Process

	site, admin, health string // addresses of the proxy
}

// The files of the demo.
func (d *demo) clusters() string   { return filepath.Join(d.dir, "clusters.d") }
func (d *demo) kubeconfig() string { return filepath.Join(d.dir, "kubeconfig") }
func (d *demo) idpCA() string      { return filepath.Join(d.dir, "provider-ca.crt") }
func (d *demo) proxyLog() string   { return filepath.Join(d.dir, "proxy.log") }
func (d *demo) proxyCA() string {
	return filepath.Join(d.dir, "data", "caddy", "pki", "authorities", "local", "root.crt")
}

// url is the cluster's, as kubectl sees it.
func (d *demo) url() string {
	return "https://" + d.site + "/clusters/" + namespace + "/" + name
}

// say announces a step.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "\n==> "+format+"\n", args...)
}

// up starts everything, in the order in which one part needs the other.
func (d *demo) up(ctx context.Context) error {
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"Looking for the programs; missing ones are built once, which takes up to ten minutes", d.findPrograms},
		{"Starting an OpenID provider that knows alice (groups team-a and a,b) and élodie", d.startProvider},
		{"Starting etcd and a kube-apiserver; it has no OIDC flag and trusts the proxy's certificate as its front proxy", d.startCluster},
		{"Writing the proxy's directory: a ProxyKubeApi, the CA of the apiserver, the front-proxy certificate", d.writeManifests},
		{"Starting the proxy: bin/caddy run --config Caddyfile.examples/demo.Caddyfile", d.startProxy},
		{"Giving rights to names with the proxy's prefix: kubectl apply -f xcaddy/demo/manifests/rbac.yaml", d.grantRights},
		{"Writing a kubeconfig; it holds no secret, kubectl logs in through an exec plugin", d.writeKubeconfig},
	}
	for i, step := range steps {
		d.say("[%d/%d] %s", i+1, len(steps), step.what)
		start := time.Now()
		if err := step.do(ctx); err != nil {
			return err
		}
		fmt.Fprintf(d.out, "    done in %s\n", time.Since(start).Round(100*time.Millisecond))
	}
	return nil
}

// findPrograms builds the programs that are in neither the cache nor bin/.
func (d *demo) findPrograms(ctx context.Context) error {
	var err error
	if d.root, err = realtools.RepoRoot(); err != nil {
		return err
	}
	if d.self, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if d.dir, err = os.MkdirTemp("", "proxyauth-demo-"); err != nil {
		return fmt.Errorf("making a temporary folder: %w", err)
	}
	for _, tool := range []realtools.Tool{realtools.Etcd, realtools.KubeAPIServer, realtools.Kubectl} {
		file, err := realtools.Path(ctx, tool, d.out)
		if err != nil {
			return err
		}
		fmt.Fprintf(d.out, "    %-15s %s\n", tool.Name, file)
		if tool == realtools.Kubectl {
			d.kubectl = file
		}
	}
	d.caddy = filepath.Join(d.root, "bin", "caddy")
	if _, err := os.Stat(d.caddy); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(d.out, "    building %s\n", d.caddy)
		cmd := exec.CommandContext(ctx, "go", "build", "-o", d.caddy, "./xcaddy")
		cmd.Dir, cmd.Env = d.root, append(os.Environ(), "GOWORK=off", "PWD="+d.root)
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building the proxy: %w\n%s", err, output)
		}
	}
	fmt.Fprintf(d.out, "    %-15s %s\n", "caddy", d.caddy)
	return nil
}

func (d *demo) startProvider(context.Context) error {
	var err error
	if d.idp, err = oidc.New(oidc.Options{}); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "    issuer %s\n", d.idp.Issuer)
	return os.WriteFile(d.idpCA(), d.idp.CA.PEM, 0o644)
}

func (d *demo) startCluster(ctx context.Context) error {
	var err error
	if d.apiserver, err = kube.StartAPIServer(ctx, filepath.Join(d.dir, "cluster"), kube.Options{}); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "    apiserver %s\n", d.apiserver.URL)
	return nil
}

// startLimit bounds the start of the proxy; a loaded machine is slow.
const startLimit = time.Minute

func (d *demo) startProxy(ctx context.Context) error {
	ports := make([]string, 3)
	for i := range ports {
		port, err := process.FreePort()
		if err != nil {
			return err
		}
		ports[i] = strconv.Itoa(port)
	}
	d.site, d.admin, d.health = "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1], "127.0.0.1:"+ports[2]
	var err error
	d.proxy, err = process.Start(process.Options{
		Path: d.caddy,
		Args: []string{"run", "--config", filepath.Join(d.root, "Caddyfile.examples", "demo.Caddyfile"), "--adapter", "caddyfile"},
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir,
			"XDG_DATA_HOME=" + filepath.Join(d.dir, "data"), "XDG_CONFIG_HOME=" + filepath.Join(d.dir, "config"),
			"DEMO_CLUSTERS=" + d.clusters(), "DEMO_SITE=" + d.site, "DEMO_ADMIN=" + d.admin, "DEMO_HEALTH=" + ports[2],
		},
		Dir: d.dir, LogFile: d.proxyLog(),
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "    proxy %s\n", d.url())
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return d.poll(ctx, "the proxy", func() error {
		if _, err := os.Stat(d.proxyCA()); err != nil {
			return err
		}
		return d.isReady(ctx)
	})
}

// isReady asks for /readyz, as a kubelet would.
func (d *demo) isReady(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.health+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answered %s", resp.Status)
	}
	return nil
}

// poll asks until f returns nil or the proxy ends.
func (d *demo) poll(ctx context.Context, what string, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-d.proxy.Done():
			return fmt.Errorf("waiting for %s: the proxy ended with code %d", what, d.proxy.ExitCode())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (last: %w)", what, ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// showLog shows why a step may have failed.
func (d *demo) showLog() {
	if d.proxy != nil {
		fmt.Fprintf(d.out, "The last lines of the proxy:\n%s\n", d.proxy.LogTail(15))
	}
}

// endLimit is how long the proxy may take to end: its grace period and some more.
const endLimit = 10 * time.Second

// cleanUp ends what runs, by its process id, and removes the folder.
func (d *demo) cleanUp() {
	if d.dir == "" {
		return
	}
	d.say("Ending everything and removing %s", d.dir)
	if d.proxy != nil {
		d.proxy.Stop(endLimit)
	}
	if d.apiserver != nil {
		d.apiserver.Stop()
	}
	if d.idp != nil {
		d.idp.Stop()
	}
	if err := os.RemoveAll(d.dir); err != nil {
		fmt.Fprintf(d.out, "removing the temporary folder: %v\n", err)
	}
}
