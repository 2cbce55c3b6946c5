package realtools

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/gobuild"
)

// built remembers paths within this process: a test asks for kubectl often.
var built sync.Map // Tool -> string

// Path returns the program's file and builds it first when the cache lacks it.
// Lines about a build, and only then, are written to progress (nil: standard
// error).
func Path(ctx context.Context, t Tool, progress io.Writer) (string, error) {
	files, err := Paths(ctx, []Tool{t}, progress)
	if err != nil {
		return "", err
	}
	return files[0], nil
}

// Need is Path for tests: a program that cannot be built fails the test.
func Need(tb testing.TB, t Tool) string {
	tb.Helper()
	file, err := Path(tb.Context(), t, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return file
}

// Paths is Path for several tools. What one go.mod pins is built by one go
// build, which compiles shared packages once and links while it compiles.
// Several go.mods are built at the same time when there are cores for it: a
// link uses one core, a compilation all.
func Paths(ctx context.Context, tools []Tool, progress io.Writer) ([]string, error) {
	if progress == nil {
		progress = os.Stderr
	}
	progress = &lines{to: progress}
	files := make([]string, len(tools))
	missing := map[string][]*plan{} // by the folder of the go.mod
	for i, t := range tools {
		if file, ok := built.Load(t); ok {
			files[i] = file.(string)
			continue
		}
		p, err := newPlan(t)
		if err != nil {
			return nil, err
		}
		if given, ok := p.given(ctx, progress); ok {
			p.file = given
		} else if !p.done() {
			missing[p.dir] = append(missing[p.dir], p)
		}
		files[i] = p.file
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, runtime.NumCPU()/2))
	for _, plans := range missing {
		group.Go(func() error { return build(groupCtx, plans, progress) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, t := range tools {
		built.Store(t, files[i])
	}
	return files, nil
}

func (p *plan) done() bool {
	info, err := os.Stat(p.file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// build builds what is still missing of the plans, all of one go.mod.
func build(ctx context.Context, plans []*plan, progress io.Writer) error {
	// In one order everywhere, so that two builders do not wait for each other.
	slices.SortFunc(plans, func(a, b *plan) int { return cmp.Compare(a.file, b.file) })
	for _, p := range plans {
		unlock, err := lock(ctx, p.file+".lock", func(waited time.Duration) {
			fmt.Fprintf(progress, "waiting for another build of %s %s ... %s\n", p.Name, p.version, waited)
		})
		if err != nil {
			return fmt.Errorf("building %s: %w", p.Name, err)
		}
		defer unlock()
	}
	plans = slices.DeleteFunc(plans, (*plan).done) // another process built it
	// One -ldflags holds for all programs of a go build, and it builds either
	// programs or tests.
	for len(plans) > 0 {
		same := slices.DeleteFunc(slices.Clone(plans), func(p *plan) bool { return p.ldflags != plans[0].ldflags || p.Test != plans[0].Test })
		plans = slices.DeleteFunc(plans, func(p *plan) bool { return slices.Contains(same, p) })
		if err := compile(ctx, same, progress); err != nil {
			return err
		}
	}
	return nil
}

// compile writes to a temporary name and renames, so that a killed build
// leaves no half program under the final one.
func compile(ctx context.Context, plans []*plan, progress io.Writer) error {
	names := describe(plans)
	start := time.Now()
	fmt.Fprintf(progress, "building %s (once; kept in %s)\n", names, filepath.Dir(plans[0].file))
	tmp, err := os.MkdirTemp(filepath.Dir(plans[0].file), "building-")
	if err != nil {
		return fmt.Errorf("building %s: %w", names, err)
	}
	defer os.RemoveAll(tmp)
	// No -trimpath here: GOFLAGS has it or not, as for all other builds of the
	// caller, so that the Go build cache holds one copy of each package.
	build := gobuild.Build{
		Name: names, Dir: plans[0].dir, Flags: []string{"-buildvcs=false", "-ldflags", plans[0].ldflags},
		Output: tmp + "/", Test: plans[0].Test, Progress: progress,
	}
	for _, p := range plans {
		build.Packages = append(build.Packages, p.Package)
	}
	if err := build.Run(ctx); err != nil {
		return fmt.Errorf("building %s: %w", names, err)
	}
	for _, p := range plans {
		if err := os.Rename(filepath.Join(tmp, p.output()), p.file); err != nil {
			return fmt.Errorf("building %s: %w", names, err)
		}
	}
	fmt.Fprintf(progress, "built %s in %s\n", names, time.Since(start).Round(100*time.Millisecond))
	return nil
}

// output is the name that go gives the program.
func (p *plan) output() string {
	name := path.Base(trimMajor(p.Package))
	if p.Test {
		return name + ".test"
	}
	return name
}

// trimMajor takes the /v3 of a module from the import path of its main package:
// go build names the program after the element before it.
func trimMajor(pkg string) string {
	if base := path.Base(pkg); len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		return path.Dir(pkg)
	}
	return pkg
}

// describe is "kube-apiserver, kubectl v1.37.2, xcaddy v0.4.5".
func describe(plans []*plan) string {
	var names strings.Builder
	for i, p := range plans {
		if i > 0 {
			names.WriteString(", ")
		}
		names.WriteString(p.Name)
		if i == len(plans)-1 || plans[i+1].version != p.version {
			names.WriteString(" " + p.version)
		}
	}
	return names.String()
}

// lines lets several builds write lines to the same writer.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}
