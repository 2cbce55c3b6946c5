package examples

import (
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
)

// Each ProxyKubeApi of the pages is one that admission accepts; a block that
// shows a part of one says so by having no kind.
func TestObjects(t *testing.T) {
	t.Parallel()
	validator, err := admission.Default()
	if err != nil {
		t.Fatal(err)
	}
	objects := 0
	for _, s := range snippets(t, "yaml") {
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
	}
	if objects < 2 {
		t.Errorf("%d objects", objects)
	}
}
