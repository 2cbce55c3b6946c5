package serving

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/directory"
)

// A status that misses an object names the files that were refused, and no other
// status does.
func TestMissingObjectsNameRefusedFiles(t *testing.T) {
	status := func(ready metav1.ConditionStatus, reason string) *v1.ProxyKubeApiStatus {
		return &v1.ProxyKubeApiStatus{Conditions: []metav1.Condition{{Type: k8swatch.ConditionReady, Status: ready, Reason: reason, Message: "it does not exist"}}}
	}
	one := []directory.RefusedFile{{File: "secret.yaml", Reason: "cannot be read: permission denied (the proxy runs as user caddy, uid 998)"}}
	for name, tt := range map[string]struct {
		status *v1.ProxyKubeApiStatus
		files  []directory.RefusedFile
		want   string
	}{
		"nothing refused": {status("False", k8swatch.ReasonClientCertMissing), nil, "it does not exist"},
		"another reason":  {status("False", k8swatch.ReasonInvalidSpec), one, "it does not exist"},
		"serving":         {status("True", k8swatch.ReasonServing), one, "it does not exist"},
		"a certificate": {status("False", k8swatch.ReasonClientCertMissing), one,
			"it does not exist; it may be in the file secret.yaml of the directory, which cannot be read: permission denied (the proxy runs as user caddy, uid 998)"},
		"a reference": {status("False", k8swatch.ReasonReferenceNotFound), append(one, one...), "or in one of 1 more that are refused"},
	} {
		t.Run(name, func(t *testing.T) {
			before := tt.status.DeepCopy()
			got := withRefusedFiles(tt.status, tt.files)
			if message := got.Conditions[0].Message; !strings.HasSuffix(message, tt.want) || message != "it does not exist" && *got.Error != message {
				t.Errorf("%q", message)
			}
			if tt.status.Conditions[0] != before.Conditions[0] {
				t.Error("the status that is remembered was changed")
			}
		})
	}
}
