package status

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

func TestConditionEvents(t *testing.T) { // REC-4
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	serving := condition(k8swatch.ConditionReady, "True", k8swatch.ReasonServing, "")
	missing := condition(k8swatch.ConditionReady, "False", k8swatch.ReasonClientCertMissing, "no Secret")
	stale := condition(k8swatch.NoticeReferenceStale, "True", k8swatch.NoticeReferenceStale, "get Secret")
	prepared := condition(k8swatch.ConditionFrontProxyNotReady, "False", k8swatch.ReasonPrepared, "")
	tests := map[string]struct {
		before, after []metav1.Condition
		want          []conditionEvent
	}{
		"the first":           {nil, []metav1.Condition{serving}, []conditionEvent{{false, k8swatch.ReasonServing, "Ready is True"}}},
		"nothing new":         {[]metav1.Condition{serving}, []metav1.Condition{serving}, nil},
		"another message":     {[]metav1.Condition{missing}, []metav1.Condition{condition(k8swatch.ConditionReady, "False", k8swatch.ReasonClientCertMissing, "no label")}, nil},
		"trouble":             {[]metav1.Condition{serving}, []metav1.Condition{missing}, []conditionEvent{{true, k8swatch.ReasonClientCertMissing, "Ready is False: no Secret"}}},
		"disabled":            {nil, []metav1.Condition{condition(k8swatch.ConditionReady, "False", k8swatch.ReasonDisabled, "")}, []conditionEvent{{false, k8swatch.ReasonDisabled, "Ready is False"}}},
		"a notice":            {nil, []metav1.Condition{stale}, []conditionEvent{{true, k8swatch.NoticeReferenceStale, "ReferenceStale is True: get Secret"}}},
		"a notice that ended": {[]metav1.Condition{stale}, nil, []conditionEvent{{false, "ReferenceStaleCleared", "ReferenceStale no longer applies"}}},
		"prepared":            {nil, []metav1.Condition{prepared}, []conditionEvent{{false, k8swatch.ReasonPrepared, "FrontProxyNotReady is False"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := conditionEvents(test.before, test.after)
			if len(got) != len(test.want) {
				t.Fatalf("%+v, want %+v", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("%+v, want %+v", got[i], test.want[i])
				}
			}
		})
	}
}

func TestEventName(t *testing.T) {
	for _, object := range []string{"prod", strings.Repeat("a", 253), strings.Repeat("a-.", 84)} {
		if name := eventName(object); len(name) > 253 || strings.Contains(name, "-.1") || strings.Contains(name, "..1") {
			t.Errorf("%q", name)
		}
	}
}
