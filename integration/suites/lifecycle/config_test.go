package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// caddy runs a command of the program with nothing of this process's
// environment, and returns its exit code and what it wrote to standard error.
func caddy(t *testing.T, dir string, env []string, args ...string) (int, string) {
	t.Helper()
	binary, err := proxy.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Env = append(append(process.ThriftyCommand(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("running caddy %q: %v\n%s", args, err, stderr.String())
	}
	return cmd.ProcessState.ExitCode(), stderr.String()
}

// badConfiguration is one that must neither validate nor start.
type badConfiguration struct {
	name string
	// text is the file, with DIR for a directory that is there.
	text string
	env  []string
	// want is a part of what is written to standard error.
	want string
}

// settings is a Caddyfile whose option proxyauth has these lines from line 5.
func settings(lines string) string {
	return "{\n\tadmin off\n\tpersist_config off\n\tproxyauth {\n" + lines + "\n\t}\n}\nhttp://:PORT {\n\tproxyauth\n}\n"
}

// app is a configuration in JSON with this app proxyauth.
func app(text string) string {
	return `{"admin":{"disabled":true,"config":{"persist":false}},"apps":{"proxyauth":` + text + `,"http":{"servers":{"s":{"listen":["127.0.0.1:PORT"],"routes":[{"handle":[{"handler":"proxyauth"}]}]}}}}}`
}

var badCaddyfiles = []badConfiguration{
	{"two sources", settings("directory DIR\nkubernetes"), nil, "kubernetes and directory exclude each other: set exactly one, at Caddyfile:7"},
	{"two sources, the other way round", settings("kubernetes {\n}\ndirectory DIR"), nil, "kubernetes and directory exclude each other: set exactly one, at Caddyfile:8"},
	{"no source", settings("namespace proxyauth"), nil, "no source: set kubernetes or directory"},
	{"empty", settings(""), nil, "no source: set kubernetes or directory"},
	{"unknown mode", settings("directory DIR\nallowed_modes Passthrough frontproxy"), nil, `allowed_modes: unknown value "frontproxy": must be one of Passthrough, FrontProxy, at Caddyfile:6`},
	{"Passthrough missing", settings("directory DIR\nallowed_modes FrontProxy"), nil, "allowed_modes must contain Passthrough, at Caddyfile:6"},
	{"no modes", settings("directory DIR\nallowed_modes"), nil, "at Caddyfile:6"},
	{"missing directory", settings("directory DIR/none"), nil, "reading the directory of clusters: open DIR/none: no such file or directory"},
	{"a directory that is none", settings("directory DIR/file.yaml"), nil, "reading the directory of clusters"},
	{"a link to nothing", settings("directory DIR/link"), nil, "reading the directory of clusters: open DIR/link: no such file or directory"},
	{"no app", "{\n\tadmin off\n}\nhttp://:PORT {\n\tproxyauth\n}\n", nil, "the global option proxyauth is missing: it says where the clusters are read from"},
	{"no app for the composed form", "{\n\tadmin off\n}\nhttp://:PORT {\n\troute {\n\t\tproxyauth_authenticate\n\t}\n}\n", nil, "the global option proxyauth is missing"},
	{"no app for the probes", "{\n\tadmin off\n}\nhttp://:PORT {\n\tproxyauth_health\n}\n", nil, "the global option proxyauth is missing"},
	{"unknown option", settings("directory DIR\nallowed_mode Passthrough"), nil, "unknown option allowed_mode: must be one of allowed_modes, audience_validation, "},
	{"an option twice", settings("directory DIR\ndirectory DIR"), nil, "directory is given twice, at Caddyfile:6"},
	{"audience_validation", settings("directory DIR\naudience_validation maybe"), nil, `audience_validation: unknown value "maybe": must be one of enforce, warn, off, at Caddyfile:6`},
	{"impersonation", settings("directory DIR\nimpersonation on"), nil, `impersonation: unknown value "on": must be one of strip, deny, forward, at Caddyfile:6`},
	{"proxy_cookies", settings("directory DIR\nproxy_cookies yes"), nil, `proxy_cookies: unknown value "yes": must be one of on, off, at Caddyfile:6`},
	{"a duration that is none", settings("directory DIR\nprobe_interval often"), nil, `probe_interval: "often" is neither a duration nor whole seconds, at Caddyfile:6`},
	{"no duration", settings("directory DIR\ntoken_cache_ttl 0"), nil, `token_cache_ttl: "0" is not longer than zero: leave the option out for its default, at Caddyfile:6`},
	{"an interval that floods", settings("directory DIR\nprobe_interval 10ms"), nil, "probe_interval: 10ms is shorter than 1s, at Caddyfile:6"},
	{"an option of kubernetes outside of it", settings("kubernetes\nwatch_namespaces team-a"), nil, "watch_namespaces belongs in kubernetes { }, at Caddyfile:6"},
	{"namespace", settings("directory DIR\nnamespace Proxy_Auth"), nil, `namespace "Proxy_Auth"`},
	{"public_url", settings("directory DIR\npublic_url http://k8s.example.com"), nil, "public_url must be an https:// URL without user, query and fragment, at Caddyfile:6"},
	{"cluster name", strings.Replace(settings("directory DIR"), "\tproxyauth\n", "\tproxyauth {\n\t\tcluster Team/A\n\t}\n", 1), nil, "cluster must be <namespace>/<name>"},
	{"unknown option of the directive", strings.Replace(settings("directory DIR"), "\tproxyauth\n", "\tproxyauth {\n\t\tclsuter a/b\n\t}\n", 1), nil, "unknown option clsuter: must be one of cluster, stream_close_delay, at Caddyfile:10"},

	{"a variable that is not set", settings("directory {env.NO_SUCH_VARIABLE}"), nil, "directory: nothing to put in place of {env.NO_SUCH_VARIABLE}: the environment variable is not set"},
	{"an empty variable", settings("directory DIR\nallowed_modes Passthrough {env.MODE}"), []string{"MODE="}, "allowed_modes: nothing to put in place of {env.MODE}: it is empty"},
	{"a file that is not there", settings("directory DIR\nprobe_interval {file.DIR/none}"), nil, "probe_interval: nothing to put in place of {file.DIR/none}: open DIR/none: no such file or directory"},
	{"a wrong value of a variable", settings("directory DIR\nimpersonation {env.MODE}"), []string{"MODE=allow"}, `impersonation: unknown value \"allow\": must be one of strip, deny, forward (from {env.MODE})`},

	{"audience from the environment", settings("directory DIR"), []string{"OIDC_AUDIENCE_VALIDATION=maybe"}, `environment variable OIDC_AUDIENCE_VALIDATION: unknown value \"maybe\": must be one of enforce, warn, off`},
	{"client TTL from the environment", settings("directory DIR"), []string{"PROXY_UPSTREAM_CLIENT_TTL=soon"}, `environment variable PROXY_UPSTREAM_CLIENT_TTL: \"soon\" is neither a duration nor whole seconds`},
	{"token TTL from the environment", settings("directory DIR"), []string{"OIDC_TOKEN_CACHE_TTL=-5"}, `environment variable OIDC_TOKEN_CACHE_TTL: \"-5\" is not longer than zero`},
	{"namespace from the environment", settings("directory DIR"), []string{"POD_NAMESPACE=No_Name"}, `namespace \"No_Name\"`},
}

var badJSON = []badConfiguration{
	{"two sources", app(`{"directory":"DIR","kubernetes":{}}`), nil, "kubernetes and directory exclude each other: set exactly one"},
	{"a kubeconfig that is not there", app(`{"kubernetes":{"kubeconfig":"/nonexistent/kubeconfig"}}`), nil, "reading the kubeconfig"},
	{"no source", app(`{}`), nil, "no source: set kubernetes or directory"},
	{"unknown mode", app(`{"directory":"DIR","allowed_modes":["Passthrough","FrontProxie"]}`), nil, `allowed_modes: unknown value \"FrontProxie\"`},
	{"Passthrough missing", app(`{"directory":"DIR","allowed_modes":["FrontProxy"]}`), nil, "allowed_modes must contain Passthrough"},
	{"missing directory", app(`{"directory":"DIR/none"}`), nil, "reading the directory of clusters: open DIR/none: no such file or directory"},
	{"an empty file", app(`{"directory":"DIR","namespace":"{file.DIR/file.yaml}"}`), nil, "namespace: nothing to put in place of {file.DIR/file.yaml}: it is empty"},
	{"a short duration from a variable", app(`{"directory":"DIR","probe_interval":"{env.SPAN}"}`), []string{"SPAN=10ms"}, "probe_interval: 10ms is shorter than 1s (from {env.SPAN})"},
	{"no app", `{"admin":{"disabled":true},"apps":{"http":{"servers":{"s":{"listen":["127.0.0.1:PORT"],"routes":[{"handle":[{"handler":"proxyauth"}]}]}}}}}`, nil, "the global option proxyauth is missing"},
	{"unknown option", app(`{"directory":"DIR","alowed_modes":["Passthrough"]}`), nil, `unknown field \"alowed_modes\"`},
	{"wrong type", app(`{"directory":["DIR"]}`), nil, "cannot unmarshal array into Go struct field App.directory of type string"},
	{"audience_validation", app(`{"directory":"DIR","audience_validation":"Enforce"}`), nil, `audience_validation: unknown value \"Enforce\"`},
	{"impersonation", app(`{"directory":"DIR","impersonation":"allow"}`), nil, `impersonation: unknown value \"allow\"`},
	{"proxy_cookies", app(`{"directory":"DIR","proxy_cookies":"true"}`), nil, `proxy_cookies: unknown value \"true\"`},
	{"a duration that is none", app(`{"directory":"DIR","probe_interval":"often"}`), nil, `probe_interval: \"often\" is neither a duration nor whole nanoseconds`},
	{"a negative duration", app(`{"directory":"DIR","upstream_client_ttl":-1}`), nil, `upstream_client_ttl: \"-1\" is not longer than zero`},
	{"no duration", app(`{"directory":"DIR","token_cache_ttl":0}`), nil, `token_cache_ttl: \"0\" is not longer than zero`},
	{"reference namespaces", app(`{"directory":"DIR","reference_namespaces":["a b"]}`), nil, `namespace \"a b\"`},
	{"cluster name", strings.Replace(app(`{"directory":"DIR"}`), `{"handler":"proxyauth"}`, `{"handler":"proxyauth","cluster":"nothing"}`, 1), nil, "cluster must be <namespace>/<name>"},
	{"unknown option of the handler", strings.Replace(app(`{"directory":"DIR"}`), `{"handler":"proxyauth"}`, `{"handler":"proxyauth","clsuter":"a/b"}`, 1), nil, `unknown field \"clsuter\"`},
}

// Section 15: a wrong configuration fails to validate and to start, both with
// the reason, and with the line where the adapter can know it.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	for _, form := range []struct {
		name, file string
		args       []string
		all        []badConfiguration
	}{
		{"Caddyfile", "Caddyfile", []string{"--adapter", "caddyfile"}, badCaddyfiles},
		{"JSON", "caddy.json", nil, badJSON},
	} {
		for _, tc := range form.all {
			t.Run(form.name+"/"+tc.name, func(t *testing.T) {
				dir := t.TempDir()
				clusters := filepath.Join(dir, "clusters.d")
				if err := errors.Join(os.Mkdir(clusters, 0o755), os.WriteFile(filepath.Join(clusters, "file.yaml"), nil, 0o644),
					os.Symlink("nothing", filepath.Join(clusters, "link"))); err != nil {
					t.Fatal(err)
				}
				fill := strings.NewReplacer("DIR", clusters, "PORT", freePort(t)).Replace
				if err := os.WriteFile(filepath.Join(dir, form.file), []byte(fill(tc.text)), 0o644); err != nil {
					t.Fatal(err)
				}
				want := fill(tc.want)
				for _, command := range []string{"validate", "run"} {
					code, stderr := caddy(t, dir, tc.env, append([]string{command, "--config", form.file}, form.args...)...)
					// The adapter's errors are plain, others are JSON lines.
					if code != 1 || !strings.Contains(stderr, want) && !strings.Contains(stderr, strings.ReplaceAll(want, `"`, `\"`)) {
						t.Errorf("caddy %s: exit code %d, without %q:\n%s", command, code, want, stderr)
					}
				}
			})
		}
	}
}

// What the tests above change one thing of is right.
func TestGoodConfiguration(t *testing.T) {
	t.Parallel()
	for file, text := range map[string]string{"Caddyfile": settings("directory DIR"), "caddy.json": app(`{"directory":"DIR"}`)} {
		dir := t.TempDir()
		text = strings.NewReplacer("DIR", dir, "PORT", freePort(t)).Replace(text)
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"validate", "--config", file}
		if file == "Caddyfile" {
			args = append(args, "--adapter", "caddyfile")
		}
		if code, stderr := caddy(t, dir, nil, args...); code != 0 {
			t.Errorf("%s: exit code %d\n%s", file, code, stderr)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := process.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(port)
}

// A reload that fails, at whichever stage, says why and leaves everything as
// it was: the streams, the requests, the clusters that are followed, the log.
func TestFailedReload(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	px.MustServe(t, namespace, "cluster-a")
	streams := openStreams(t, px, "cluster-a")
	good := caddyfile(t, px)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	other := t.TempDir()
	write(t, other, "c.yaml", manifest("cluster-c", up, 1, nil))

	for n, tc := range []struct {
		name, caddyfile, want string
		times                 int
	}{
		{"does not adapt", strings.Replace(good, "allowed_modes Passthrough FrontProxy", "allowed_modes FrontProxy", 1), "allowed_modes must contain Passthrough", 1},
		{"does not provision", strings.Replace(good, px.Directory, px.Directory+"/none", 1), "no such file or directory", 1},
		// Caddy starts apps in random order: the proxy's may be the first.
		{"does not start, with another directory", strings.Replace(good, px.Directory, other, 1) +
			fmt.Sprintf("http://%s {\n\tbind 127.0.0.1\n}\n", strings.Replace(busy.Addr().String(), "127.0.0.1", "", 1)), "address already in use", 6},
		{"does not start, with the same options", good +
			fmt.Sprintf("http://%s {\n\tbind 127.0.0.1\n}\n", strings.Replace(busy.Addr().String(), "127.0.0.1", "", 1)), "address already in use", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range tc.times {
				err := px.Reload(t.Context(), func(o *proxy.Options) { o.Caddyfile = tc.caddyfile })
				if err == nil || !strings.Contains(err.Error(), "exit code 1") || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("the reload says %v, want %q", err, tc.want)
				}
			}
			allAlive(t, streams)
			fresh := openStreams(t, px, "cluster-a")
			if a := get(t, px, "cluster-a"); a.Code != 200 {
				t.Errorf("a new request: %d %s", a.Code, a.Body)
			}
			if a := get(t, px, "cluster-c"); a.Code != 404 {
				t.Errorf("a cluster of the other directory: %d %s", a.Code, a.Body)
			}
			name := fmt.Sprintf("added-%d", n)
			px.MustWrite(t, name+".yaml", cluster(name, up, 1, nil)...)
			waitCode(t, px, name, 200)
			// What outlives a configuration logs to the one in force.
			broken := name + "-broken.yaml"
			if err := px.WriteManifest(broken, "{"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the log tells of the broken file", patience, func() error {
				entries, err := px.Log()
				if err != nil {
					return err
				}
				for _, e := range entries {
					if e.Text("file") == broken {
						return nil
					}
				}
				return errors.New("no such line")
			})
			allAlive(t, append(fresh, streams...))
		})
	}
	if n := countGoroutines(t, px, "serving.(*Runtime).compileChanges"); n != 1 {
		t.Errorf("%d runtimes are running, want 1", n)
	}
	reload(t, px, func(o *proxy.Options) { o.Caddyfile = good })
	allAlive(t, streams)
}
