package docs

import (
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
)

// Each ProxyKubeApi of the pages is one that admission and the compiler accept;
// a block that shows a part of one says so by having no kind.
func TestObjects(t *testing.T) {
	t.Parallel()
	validator, err := admission.Default()
	if err != nil {
		t.Fatal(err)
	}
	objects := 0
	for _, s := range snippets(t, "yaml") {
		before := objects
		decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(s.text), 4096)
		for {
			var object map[string]any
			if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s:%d: %v", s.page, s.line, err)
				break
			}
			if object["kind"] != "ProxyKubeApi" {
				continue
			}
			objects++
			if _, err := validator.Admit(object); err != nil {
				t.Errorf("%s:%d: %v\n%s", s.page, s.line, err, s.text)
			}
		}
		if objects == before {
			continue
		}
		clusters := compileManifest(t, s.text)
		if len(clusters) != objects-before {
			t.Errorf("%s:%d: %d objects of %d were read", s.page, s.line, len(clusters), objects-before)
		}
		for _, c := range clusters {
			if c.Ready.Reason == k8swatch.ReasonInvalidSpec {
				t.Errorf("%s:%d: %s", s.page, s.line, c.Ready.Message)
			}
		}
	}
	if objects < 2 {
		t.Errorf("%d objects", objects)
	}
}
