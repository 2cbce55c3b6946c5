package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// etc is the folder that the examples name.
const etc = "/etc/proxyauth"

// host is a machine on which the paths of the examples are there.
type host struct{ dir string }

func newHost(t *testing.T) host {
	t.Helper()
	h := host{t.TempDir()}
	tls := filepath.Join(h.dir, "etc", "tls")
	ca := pki.MustCA("example-ca")
	pair := pki.Must(ca.Server("k8s.example.com", "*.k8s.example.com"))
	hub := kube.Access{Server: "https://hub.example.com", CA: ca.PEM, Token: "none"}
	if err := errors.Join(
		os.MkdirAll(filepath.Join(h.dir, "etc", "clusters.d"), 0o755), os.MkdirAll(tls, 0o755),
		os.WriteFile(filepath.Join(tls, "ca.crt"), ca.PEM, 0o644),
		os.WriteFile(filepath.Join(tls, "tls.crt"), pair.CertPEM, 0o644),
		os.WriteFile(filepath.Join(tls, "tls.key"), pair.KeyPEM, 0o600),
		kube.WriteKubeconfig(filepath.Join(h.dir, "etc", "hub.kubeconfig"), hub),
	); err != nil {
		t.Fatal(err)
	}
	return h
}

// caddy runs a command on a Caddyfile.
func (h host) caddy(t *testing.T, command, text string) (stdout, stderr string, code int) {
	t.Helper()
	binary, err := proxy.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(h.dir, "Caddyfile")
	text = strings.ReplaceAll(text, etc, filepath.Join(h.dir, "etc"))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, command, "--config", file, "--adapter", "caddyfile")
	cmd.Dir = h.dir
	cmd.Env = append(process.ThriftyCommand(), "HOME="+h.dir, "XDG_DATA_HOME="+h.dir, "XDG_CONFIG_HOME="+h.dir)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), messages.String(), cmd.ProcessState.ExitCode()
}

// valid adapts and validates a whole file and returns its JSON.
func (h host) valid(t *testing.T, text string) (adapted []byte, problem string) {
	t.Helper()
	stdout, stderr, code := h.caddy(t, "adapt", text)
	if code != 0 || strings.Contains(stderr, `"level":"warn"`) {
		return nil, "caddy adapt: " + stderr
	}
	_, stderr, code = h.caddy(t, "validate", text)
	if code != 0 {
		return nil, "caddy validate: " + stderr
	}
	return []byte(stdout), ""
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := realtools.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(repository(t), "Caddyfile.examples", "*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			adapted, problem := newHost(t).valid(t, string(text))
			if problem != "" {
				t.Fatal(problem)
			}
			checkAccessLogs(t, adapted)
			if !strings.Contains(string(adapted), `"proxyauth"`) {
				t.Error("it does not use the proxy")
			}
			if strings.Contains(string(adapted), `"encode"`) {
				t.Error("it has encode, which holds back the headers of a quiet watch")
			}
		})
	}
}

// checkAccessLogs demands the filter of SIG-3 of every access log.
func checkAccessLogs(t *testing.T, adapted []byte) {
	t.Helper()
	var config struct {
		Logging struct {
			Logs map[string]struct {
				Include []string
				Encoder struct {
					Format string
					Fields map[string]struct {
						Filter  string
						Actions []struct{ Type, Parameter string }
					}
				}
			}
		}
		Apps struct {
			HTTP struct {
				Servers map[string]struct{ Logs *json.RawMessage }
			}
		}
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	logged := false
	for _, server := range config.Apps.HTTP.Servers {
		logged = logged || server.Logs != nil
	}
	filtered := false
	for name, log := range config.Logging.Logs {
		if !slices.ContainsFunc(log.Include, func(s string) bool { return strings.HasPrefix(s, "http.log.access") }) {
			continue
		}
		filtered = true
		fields := log.Encoder.Fields
		for _, header := range []string{"request>headers>Sec-Websocket-Protocol", "request>headers>Cookie"} {
			if log.Encoder.Format != "filter" || fields[header].Filter != "delete" {
				t.Errorf("the log %s does not remove %s", name, header)
			}
		}
		query := fields["request>uri"]
		if query.Filter != "query" || len(query.Actions) == 0 || query.Actions[0].Parameter != "access_token" || query.Actions[0].Type != "delete" {
			t.Errorf("the log %s does not remove tokens from queries", name)
		}
	}
	if logged && !filtered {
		t.Error("requests are logged without a filter")
	}
}

// snippet is a fenced block of a page.
type snippet struct {
	page, language, text string
	line                 int
}

// pages are the pages at the top of the repository, such as README.md, and the
// pages of docs.
func pages(t *testing.T) []string {
	t.Helper()
	root := repository(t)
	all, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// snippets are the fenced blocks of the pages.
func snippets(t *testing.T, language string) []snippet {
	t.Helper()
	root := repository(t)
	var all []snippet
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(root, page)
		var open *snippet
		indent := ""
		for n, line := range strings.Split(string(text), "\n") {
			bare := strings.TrimLeft(line, " ")
			switch {
			case open == nil && strings.HasPrefix(bare, "```"):
				indent = line[:len(line)-len(bare)]
				open = &snippet{page: name, language: strings.TrimPrefix(bare, "```"), line: n + 1}
			case open != nil && strings.HasPrefix(bare, "```"):
				if open.language == language {
					all = append(all, *open)
				}
				open = nil
			case open != nil:
				open.text += strings.TrimPrefix(line, indent) + "\n"
			}
		}
		if open != nil {
			t.Errorf("%s:%d: the block does not end", name, open.line)
		}
	}
	return all
}

// whole are the files that a snippet may be a part of: itself, and what goes
// into the global options or into a site.
func whole(s string) []string {
	const source = "\tproxyauth {\n\t\tdirectory /etc/proxyauth/clusters.d\n\t}\n"
	const site = "\nk8s.example.com {\n\tproxyauth\n}\n"
	indented := "\t" + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n\t") + "\n"
	files := []string{s, s + site, "{\n" + source + "}\n\n" + s}
	if strings.HasPrefix(s, "proxyauth {") {
		files = append(files, "{\n"+indented+"}\n"+site)
	}
	return append(files,
		"{\n"+source+indented+"}\n"+site,
		"{\n"+source+"}\n\nk8s.example.com {\n"+indented+"\tproxyauth\n}\n",
		"{\n"+source+"}\n\nk8s.example.com {\n"+indented+"}\n")
}

func TestSnippets(t *testing.T) {
	t.Parallel()
	all := snippets(t, "caddyfile")
	if len(all) == 0 {
		t.Fatal("no snippets")
	}
	for _, s := range all {
		t.Run(s.page+":"+strconv.Itoa(s.line), func(t *testing.T) {
			h := newHost(t)
			var problems []string
			for _, text := range whole(s.text) {
				adapted, problem := h.valid(t, text)
				if problem == "" {
					checkAccessLogs(t, adapted)
					return
				}
				problems = append(problems, problem)
			}
			t.Errorf("neither a whole file nor a part of one:\n%s\n%s", s.text, strings.Join(problems, "\n"))
		})
	}
}

// What is wrong must not pass as a snippet, whatever is put around it.
func TestSnippetsCanFail(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, wrong := range []string{
		"proxyauth {\n\tdirectroy /etc/proxyauth/clusters.d\n}\n",
		"k8s.example.com {\n\tproxyauth {\n\t\tclsuter a/b\n\t}\n}\n",
		"servers {\n\ttrusted_proxy static 192.0.2.10/32\n}\n",
		"log {\n\tformat filter {\n\t\tfield {\n\t\t}\n\t}\n}\n",
		"  proxyauth {\n  directory /etc/proxyauth/clusters.d\n  }\n", // not formatted
	} {
		for _, text := range whole(wrong) {
			if _, problem := h.valid(t, text); problem == "" {
				t.Errorf("valid:\n%s", text)
			}
		}
	}
}
