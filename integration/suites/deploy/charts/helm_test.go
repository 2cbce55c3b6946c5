package charts

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	yamlvalues "sigs.k8s.io/yaml"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

const (
	// The release that tests render and install.
	release   = "proxy"
	namespace = "proxyauth"

	// storageNamespace is where that release keeps Caddy's certificates.
	storageNamespace = "proxyauth-proxy-proxyauthk8s-caddy-19eb9d2a"

	// kubeVersion is the one to render for: a helm that is built without the
	// flags of its releases takes 1.20 for the latest.
	kubeVersion = "1.37.0"
)

// helm runs the real program with a home of its own.
type helm struct{ binary, home, kubeconfig string }

func newHelm(t *testing.T, kubeconfig string) helm {
	t.Helper()
	return helm{realtools.Need(t, realtools.Helm), t.TempDir(), kubeconfig}
}

func (h helm) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.binary, args...)
	cmd.Dir = h.home
	cmd.Env = append(process.ThriftyCommand(), "HOME="+h.home, "KUBECONFIG="+h.kubeconfig)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("running helm %q: %v", args, err)
	}
	return out.String(), messages.String(), cmd.ProcessState.ExitCode()
}

// mustRun runs a command that has to end with exit code 0.
func (h helm) mustRun(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := h.run(t, args...)
	if code != 0 {
		t.Fatalf("helm %q: exit code %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

func repositoryPath(t *testing.T, elements ...string) string {
	t.Helper()
	root, err := realtools.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{root}, elements...)...)
}

func chart(t *testing.T) string     { return repositoryPath(t, "charts", "proxyauthk8s") }
func crdsChart(t *testing.T) string { return repositoryPath(t, "charts", "proxyauthk8s-crds") }

// valueSets are the files of testdata by name, and the defaults, which need none.
func valueSets(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d sets of values, %v", len(files), err)
	}
	sets := map[string]string{"default": os.DevNull}
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		sets[strings.TrimSuffix(filepath.Base(file), ".yaml")] = path
	}
	return sets
}

// scheme knows every kind of Kubernetes itself that the charts may render.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, autoscalingv2.AddToScheme, rbacv1.AddToScheme, policyv1.AddToScheme,
		networkingv1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// custom are the kinds of others, which the test of installation has judged by
// their own schemas.
var custom = map[string]bool{
	"cert-manager.io/v1 Certificate":          true,
	"monitoring.coreos.com/v1 ServiceMonitor": true,
	"monitoring.coreos.com/v1 PodMonitor":     true,
	"monitoring.coreos.com/v1 PrometheusRule": true,
	"gateway.networking.k8s.io/v1 TLSRoute":   true,
	"gateway.networking.k8s.io/v1 HTTPRoute":  true,
}

// template runs helm template.
func template(t *testing.T, release, namespace, chart string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return newHelm(t, os.DevNull).run(t, append([]string{"template", release, chart, "--namespace", namespace, "--kube-version", kubeVersion}, args...)...)
}

// mustTemplate is template that has to succeed.
func mustTemplate(t *testing.T, release, namespace, chart string, args ...string) string {
	t.Helper()
	stdout, stderr, code := template(t, release, namespace, chart, args...)
	if code != 0 {
		t.Fatalf("helm template %s in %s %q: exit code %d\n%s%s", release, namespace, args, code, stdout, stderr)
	}
	return stdout
}

// render is what helm template makes, decoded.
func render(t *testing.T, chart string, args ...string) []runtime.Object {
	t.Helper()
	return decode(t, mustTemplate(t, release, namespace, chart, args...))
}

// decode decodes each object of a manifest strictly: a field that its type does
// not have, or given twice, is an error.
func decode(t *testing.T, text string) []runtime.Object {
	t.Helper()
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	var objects []runtime.Object
	for _, generic := range documents(t, text) {
		if custom[generic.GetAPIVersion()+" "+generic.GetKind()] {
			objects = append(objects, generic)
			continue
		}
		document, err := yamlvalues.Marshal(generic.Object)
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

// documents are the objects of a manifest as they are written.
func documents(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(text)))
	defer decoder.Close()
	for buffer := make([]byte, len(text)+1); ; {
		n, err := decoder.Read(buffer)
		if errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		generic := new(unstructured.Unstructured)
		if err := yamlvalues.UnmarshalStrict(buffer[:n], &generic.Object); err != nil {
			t.Fatalf("%v\n%s", err, buffer[:n])
		}
		if len(generic.Object) > 0 {
			objects = append(objects, generic)
		}
	}
}

// all are the objects of one type.
func all[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// one is the only object of its type.
func one[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	found := all[T](objects)
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T", len(found), *new(T))
	}
	return found[0]
}

// byName is the object of a type with that name, nil when there is none.
func byName[T interface {
	comparable
	runtime.Object
	GetName() string
}](objects []runtime.Object, name string) (none T) {
	for _, o := range all[T](objects) {
		if o.GetName() == name {
			return o
		}
	}
	return none
}
