package charts

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
	appsv1 "k8s.io/api/apps/v1"
)

// The image has what the chart's pod expects of it: program, command, user and
// folders. It is built with a Go that the module accepts.
func TestContainerfile(t *testing.T) {
	t.Parallel()
	read := func(elements ...string) string {
		text, err := os.ReadFile(repositoryPath(t, elements...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	last := map[string]string{} // instruction -> its arguments, of the last stage
	var builder string
	for line := range strings.Lines(read("xcaddy", "Containerfile")) {
		instruction, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "FROM":
			if builder == "" {
				builder = arguments
			}
			clear(last)
			last[instruction] = arguments
		case "COPY":
			last[instruction] += arguments + "\n"
		default:
			last[instruction] = arguments
		}
	}

	spec := one[*appsv1.Deployment](t, render(t, chart(t))).Spec.Template.Spec
	c := spec.Containers[0]
	var command, further []string
	for instruction, list := range map[string]*[]string{"ENTRYPOINT": &command, "CMD": &further} {
		if err := json.Unmarshal([]byte(last[instruction]), list); err != nil {
			t.Fatalf("%s %s: %v", instruction, last[instruction], err)
		}
	}
	if diff := cmp.Diff(append(command, further...), c.Command); diff != "" {
		t.Error(diff)
	}
	if want := fmt.Sprintf("%d:%d", *spec.SecurityContext.RunAsUser, *spec.SecurityContext.RunAsGroup); last["USER"] != want {
		t.Errorf("USER %s, the pod runs as %s", last["USER"], want)
	}
	if last["FROM"] != "scratch" || last["WORKDIR"] != "/" {
		t.Errorf("FROM %s, WORKDIR %s", last["FROM"], last["WORKDIR"])
	}
	for _, to := range []string{"/usr/bin/caddy\n", "--chown=65532:65532 /out/empty /data\n", "--chown=65532:65532 /out/empty /run/proxyauth\n", "/etc/ssl/certs/ca-certificates.crt\n"} {
		if !strings.Contains(last["COPY"], to) {
			t.Errorf("nothing is copied to %s", to)
		}
	}
	for _, e := range c.Env {
		if e.Value != "" && !strings.Contains(last["ENV"], e.Name+"="+e.Value) {
			t.Errorf("ENV %s, the pod has %s=%s", last["ENV"], e.Name, e.Value)
		}
	}

	mod, err := modfile.Parse("go.mod", []byte(read("go.mod")), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, tag, _ := strings.Cut(strings.Fields(builder)[0], ":")
	version, _, _ := strings.Cut(tag, "-")
	if !semver.IsValid("v"+version) || strings.Count(version, ".") != 2 || semver.Compare("v"+version, "v"+mod.Go.Version) < 0 {
		t.Errorf("built with Go %s, go.mod wants %s", version, mod.Go.Version)
	}
}
