package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/gobuild"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// Runner runs tests on a node.
type Runner struct {
	Node *node.Node
	// Dir receives the logs and reports.
	Dir string
	// AtOnce is how many tests run at the same time.
	AtOnce int
	// Progress receives lines about how far a run is.
	Progress io.Writer

	runs int
}

// progressInterval is how often a run says how far it is.
const progressInterval = 30 * time.Second

// runTimeout bounds one run; ginkgo then ends it and writes what it has.
const runTimeout = 100 * time.Minute

// List are the names of all conformance tests.
func List(ctx context.Context, dir string) ([]string, error) {
	binary, err := realtools.Path(ctx, realtools.E2ETest, nil)
	if err != nil {
		return nil, err
	}
	report := filepath.Join(dir, "list.json")
	p, err := process.Start(process.Options{
		Path: binary, Dir: dir, LogFile: filepath.Join(dir, "list.log"), Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir},
		Args: []string{"--ginkgo.dry-run", `--ginkgo.focus=\[Conformance\]`, "--ginkgo.json-report=" + report, "--provider=skeleton", "--kubeconfig=/dev/null"},
	})
	if err != nil {
		return nil, err
	}
	if code := p.ExitCode(); code != 0 {
		return nil, fmt.Errorf("listing the tests: exit code %d: %s", code, p.LogTail(3))
	}
	results, err := readReport(report)
	if err != nil {
		return nil, err
	}
	return sortedNames(results), nil
}

// Run runs the tests of these names with a kubeconfig. A test that did not run
// to its end is not among the results.
func (r *Runner) Run(ctx context.Context, label, kubeconfig string, tests []string) (Results, error) {
	if len(tests) == 0 {
		return Results{}, nil
	}
	r.runs++
	dir := filepath.Join(r.Dir, fmt.Sprintf("%02d-%s", r.runs, label))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("running the tests: %w", err)
	}
	p, err := r.start(ctx, dir, kubeconfig, tests)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	tell := func() {
		done, failed := progress(p.Log())
		fmt.Fprintf(r.Progress, "%s: %d of %d tests done, %d failed, %s\n", label, done, len(tests), failed, time.Since(start).Round(time.Second))
	}
	stop := gobuild.Every(progressInterval, tell)
	err = r.wait(ctx, p)
	stop()
	tell()
	if err != nil {
		return nil, fmt.Errorf("running the tests: %w", err)
	}
	results, err := readReport(filepath.Join(dir, "report.json"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", label, err, p.LogTail(30))
	}
	return results, nil
}

// wait waits for the end of ginkgo, and stops it when the context ends or a
// server of the node does: no test would pass from there on.
func (r *Runner) wait(ctx context.Context, p *process.Process) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-p.Done():
			return nil
		case <-ctx.Done():
			p.Stop(10 * time.Second)
			return ctx.Err()
		case <-ticker.C:
			if err := r.Node.Ended(); err != nil {
				p.Stop(10 * time.Second)
				return err
			}
		}
	}
}

// start starts ginkgo on the node.
func (r *Runner) start(ctx context.Context, dir, kubeconfig string, tests []string) (*process.Process, error) {
	paths, err := realtools.Paths(ctx, []realtools.Tool{realtools.Ginkgo, realtools.E2ETest, realtools.Kubectl}, nil)
	if err != nil {
		return nil, err
	}
	// ginkgo knows a compiled suite by the end of its name, and the tests name
	// their kubectl kubectl.
	links := map[string]string{"e2e.test": paths[1], "kubectl": paths[2]}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("running the tests: %w", err)
		}
	}
	quoted := make([]string, len(tests))
	for i, name := range tests {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return process.Start(process.Options{
		Path: paths[0], Dir: dir, LogFile: filepath.Join(dir, "log"), Namespaces: r.Node.Namespaces,
		Env: []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8", "TMPDIR=" + os.TempDir()},
		Args: []string{
			fmt.Sprintf("--procs=%d", r.AtOnce), "--no-color", "-v", "--keep-going", "--output-interceptor-mode=none",
			"--timeout=" + runTimeout.String(), "--output-dir=" + dir, "--json-report=report.json",
			"--focus=(" + strings.Join(quoted, "|") + ")$", "./e2e.test", "--",
			"--provider=skeleton", "--kubeconfig=" + kubeconfig, "--kubectl-path=" + filepath.Join(dir, "kubectl"),
			"--num-nodes=1", "--allowed-not-ready-nodes=0", "--disable-log-dump", "--dump-logs-on-failure=false",
		},
	})
}

// progress counts the tests that the log of ginkgo tells the end of.
func progress(log []byte) (done, failed int) {
	for line := range bytes.Lines(log) {
		rest, ok := bytes.CutPrefix(line, []byte("• ["))
		if !ok {
			continue
		}
		done++
		if c := rest[0]; c < '0' || c > '9' { // [FAILED], and not [1.2 seconds]
			failed++
		}
	}
	return done, failed
}
