package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Entry is one JSON line of the log.
type Entry map[string]any

// Text is a field as a string, empty when absent.
func (e Entry) Text(field string) string {
	s, _ := e[field].(string)
	return s
}

// Log is every line of the log so far.
func (p *Proxy) Log() ([]Entry, error) { return p.log.All() }

// AuditLogger is the logger of the audit lines (SIG-2).
const AuditLogger = "proxyauth.audit"

// Audit are the audit lines so far.
func (p *Proxy) Audit() ([]Entry, error) {
	all, err := p.Log()
	var lines []Entry
	for _, e := range all {
		if e.Text("logger") == AuditLogger {
			lines = append(lines, e)
		}
	}
	return lines, err
}

// WaitLog returns the first line that matches, when it is there.
func (p *Proxy) WaitLog(ctx context.Context, match func(Entry) bool) (Entry, error) {
	var found Entry
	err := p.poll(ctx, func(context.Context) error {
		all, err := p.Log()
		if err != nil {
			return err
		}
		for _, e := range all {
			if match(e) {
				found = e
				return nil
			}
		}
		return fmt.Errorf("no such line among %d", len(all))
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for a log line: %w", err)
	}
	return found, nil
}

// WaitAudit is WaitLog for audit lines.
func (p *Proxy) WaitAudit(ctx context.Context, match func(Entry) bool) (Entry, error) {
	return p.WaitLog(ctx, func(e Entry) bool { return e.Text("logger") == AuditLogger && match(e) })
}

// Everything is all text the proxy has written, log and output, for searches.
func (p *Proxy) Everything() string {
	log, _ := os.ReadFile(p.placeholders["log"])
	return string(log) + string(p.proc.Log())
}

func (p *Proxy) lastLines() string {
	lines := strings.Split(strings.TrimSpace(p.Everything()), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// Output is what the program wrote to standard output and error, where a race
// report or a panic is found.
func (p *Proxy) Output() string { return string(p.proc.Log()) }

// AdminDo sends a request to the admin API.
func (p *Proxy) AdminDo(ctx context.Context, method, path string, body io.Reader) (int, string, error) {
	transport := &http.Transport{DialContext: p.options.Namespaces.DialContext}
	host := p.Admin
	if socket, ok := strings.CutPrefix(p.Admin, "unix/"); ok {
		host = "localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, body)
	if err != nil {
		return 0, "", err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("asking the admin API: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// Metrics is the whole page of metrics.
func (p *Proxy) Metrics(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Health+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("reading the metrics: %w", err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	if err != nil {
		return "", fmt.Errorf("reading the metrics: %w", err)
	}
	return string(page), nil
}

// ClusterStatus is one entry of GET /proxyauth/clusters (SIG-4).
type ClusterStatus struct {
	Namespace string                `json:"namespace"`
	Name      string                `json:"name"`
	Status    v1.ProxyKubeApiStatus `json:"status"`
}

// Condition is that of a type, nil when absent.
func (s *ClusterStatus) Condition(kind string) *metav1.Condition {
	for i := range s.Status.Conditions {
		if s.Status.Conditions[i].Type == kind {
			return &s.Status.Conditions[i]
		}
	}
	return nil
}

// Ready is the status and reason of the Ready condition, e.g. "True/Serving".
func (s *ClusterStatus) Ready() string {
	c := s.Condition("Ready")
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

// Clusters asks the admin API for the clusters.
func (p *Proxy) Clusters(ctx context.Context) ([]ClusterStatus, error) {
	code, body, err := p.AdminDo(ctx, http.MethodGet, "/proxyauth/clusters", nil)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("asking for the clusters: %d: %s", code, body)
	}
	var list []ClusterStatus
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		return nil, fmt.Errorf("asking for the clusters: %w", err)
	}
	return list, nil
}

// WaitCluster returns the status of a cluster as soon as it is as wanted.
func (p *Proxy) WaitCluster(ctx context.Context, namespace, name string, want func(*ClusterStatus) bool) (*ClusterStatus, error) {
	var found *ClusterStatus
	err := p.poll(ctx, func(ctx context.Context) error {
		list, err := p.Clusters(ctx)
		if err != nil {
			return err
		}
		for i := range list {
			if list[i].Namespace != namespace || list[i].Name != name {
				continue
			}
			if found = &list[i]; want(found) {
				return nil
			}
			status, _ := json.Marshal(found.Status)
			return fmt.Errorf("its status is %s", status)
		}
		return fmt.Errorf("it is not among %d clusters", len(list))
	})
	if err != nil {
		return found, fmt.Errorf("waiting for the cluster %s/%s: %w", namespace, name, err)
	}
	return found, nil
}

// Files are the files of the proxy's folder, for searches of what must not be
// written to disk.
func (p *Proxy) Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = b
		return err
	})
	return files, err
}
