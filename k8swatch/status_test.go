package k8swatch

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// compiled makes a cluster with a good certificate.
func compiled(t testing.TB, change ...func(*v1.ProxyKubeApiSpec)) *Cluster {
	t.Helper()
	b := newBench(t)
	b.putSecret(frontProxySecretOf(certificate(t)))
	b.put(object(change...))
	return b.compile()
}

func probed(trust v1.Trust, message string) TrustState {
	return TrustState{Trust: trust, Since: testNow.Add(-time.Hour), LastProbe: testNow.Add(-time.Minute), Message: message}
}

func condition(s *v1.ProxyKubeApiStatus, kind string) *metav1.Condition {
	i := slices.IndexFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &s.Conditions[i]
}

func TestEffectiveReady(t *testing.T) { // section 7, TRUST-4
	old := probed(v1.TrustRejected, "401")
	old.LastProbe = testNow.Add(-24 * time.Hour)
	tests := map[string]struct {
		change []func(*v1.ProxyKubeApiSpec)
		trust  TrustState
		reason string
	}{
		"Trusted":                       {[]func(*v1.ProxyKubeApiSpec){inFrontProxy}, probed(v1.TrustTrusted, ""), ReasonServing},
		"not probed":                    {[]func(*v1.ProxyKubeApiSpec){inFrontProxy}, TrustState{}, ReasonServing},
		"Unknown":                       {[]func(*v1.ProxyKubeApiSpec){inFrontProxy}, probed(v1.TrustUnknown, ""), ReasonServing},
		"Rejected":                      {[]func(*v1.ProxyKubeApiSpec){inFrontProxy}, probed(v1.TrustRejected, ""), ReasonFrontProxyNotTrusted},
		"Rejected, long ago":            {[]func(*v1.ProxyKubeApiSpec){inFrontProxy}, old, ReasonFrontProxyNotTrusted},
		"NotHonoured":                   {[]func(*v1.ProxyKubeApiSpec){inFrontProxy}, probed(v1.TrustNotHonoured, ""), ReasonUpstreamIdentityNotHonoured},
		"a verdict of later times":      {[]func(*v1.ProxyKubeApiSpec){inFrontProxy}, probed("Doubtful", ""), ReasonServing},
		"Rejected in preparation":       {[]func(*v1.ProxyKubeApiSpec){inPreparation}, probed(v1.TrustRejected, ""), ReasonServing},
		"Rejected in plain Passthrough": {nil, probed(v1.TrustRejected, ""), ReasonServing},
		"another reason comes first": {[]func(*v1.ProxyKubeApiSpec){inFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.Enabled = ptr(false) }},
			probed(v1.TrustRejected, ""), ReasonDisabled},
		"Trusted opens nothing": {[]func(*v1.ProxyKubeApiSpec){inFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.ProxyGroup = ptr("") }},
			probed(v1.TrustTrusted, ""), ReasonInvalidSpec},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := compiled(t, test.change...)
			got := EffectiveReady(c, test.trust)
			if got.Type != ConditionReady || got.Reason != test.reason || got.Message == "" || (got.Status == StatusTrue) != (test.reason == ReasonServing) {
				t.Errorf("%+v, want %s", got, test.reason)
			}
		})
	}
	c := compiled(t, inFrontProxy)
	if got := EffectiveReady(c, probed(v1.TrustNotHonoured, "the apiserver saw \"x\"\n")); got.Message != `the apiserver saw "x" ` {
		t.Errorf("message %q", got.Message)
	}
}

func TestStatusOfAServedCluster(t *testing.T) { // REC-3
	reachable := Condition{Type: ConditionReachable, Status: StatusTrue, Reason: "Answered", Message: "200"}
	c := compiled(t, inFrontProxy)
	got := BuildStatus(StatusInput{Cluster: c, Trust: probed(v1.TrustTrusted, ""), Reachable: &reachable, Now: testNow.Add(time.Millisecond)})
	now := metav1.NewTime(testNow)
	want := &v1.ProxyKubeApiStatus{
		Exposed: true, Path: ptr("/clusters/team-a/prod"), ObservedGeneration: 7,
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: "True", Reason: "Serving", Message: "the cluster is served", ObservedGeneration: 7, LastTransitionTime: now},
			{Type: "Reachable", Status: "True", Reason: "Answered", Message: "200", ObservedGeneration: 7, LastTransitionTime: now},
		},
		UpstreamAuth: &v1.UpstreamAuthStatus{
			Mode: "FrontProxy", Trust: v1.TrustTrusted,
			TrustSince: &metav1.Time{Time: testNow.Add(-time.Hour)}, LastProbe: &metav1.Time{Time: testNow.Add(-time.Minute)},
			ClientCertSecret: frontProxyName, ClientCertTarget: testTarget, ClientCertNotAfter: &metav1.Time{Time: testNow.Add(23 * time.Hour)},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestStatusFields(t *testing.T) { // REC-3
	const updateRefused = "spec.service: exactly one"
	tests := map[string]struct {
		in            func(*bench) StatusInput
		path, errText string
		exposed       bool
		upstream      v1.UpstreamAuthStatus
	}{
		"plain Passthrough": {func(b *bench) StatusInput { return StatusInput{Cluster: compiled(b.t)} },
			"/clusters/team-a/prod", "", false, v1.UpstreamAuthStatus{Mode: "Passthrough"}},
		"disabled": {func(b *bench) StatusInput {
			return StatusInput{Cluster: compiled(b.t, func(s *v1.ProxyKubeApiSpec) { s.Enabled = ptr(false) }),
				Reachable: &Condition{Type: ConditionReachable, Status: StatusTrue}}
		}, "", "spec.enabled is false", false, v1.UpstreamAuthStatus{Mode: "Passthrough"}},
		"not reachable": {func(b *bench) StatusInput {
			return StatusInput{Cluster: compiled(b.t), Reachable: &Condition{Type: ConditionReachable, Status: StatusFalse, Reason: "ConnectFailed"}}
		}, "/clusters/team-a/prod", "", false, v1.UpstreamAuthStatus{Mode: "Passthrough"}},
		"update refused": {func(b *bench) StatusInput {
			b.store.objects[testKey] = &Object{ProxyKubeApi: object(), UpdateRefused: updateRefused}
			return StatusInput{Cluster: b.compile()}
		}, "/clusters/team-a/prod", updateRefused, false, v1.UpstreamAuthStatus{Mode: "Passthrough"}},
		"update refused and not ready": {func(b *bench) StatusInput {
			b.store.objects[testKey] = &Object{ProxyKubeApi: object(func(s *v1.ProxyKubeApiSpec) { s.Enabled = ptr(false) }), UpdateRefused: updateRefused}
			return StatusInput{Cluster: b.compile()}
		}, "", "spec.enabled is false", false, v1.UpstreamAuthStatus{Mode: "Passthrough"}},
		"no certificate": {func(b *bench) StatusInput {
			b.put(object(inFrontProxy))
			return StatusInput{Cluster: b.compile(), Trust: probed(v1.TrustTrusted, "")}
		}, "/clusters/team-a/prod", "Secret proxyauth/" + frontProxyName + " does not exist", false,
			v1.UpstreamAuthStatus{Mode: "FrontProxy", ClientCertSecret: frontProxyName, ClientCertTarget: testTarget}},
		"rejected": {func(b *bench) StatusInput {
			return StatusInput{Cluster: compiled(b.t, inFrontProxy), Trust: probed(v1.TrustRejected, "401 x")}
		}, "/clusters/team-a/prod", "401 x", false, v1.UpstreamAuthStatus{Mode: "FrontProxy", Trust: v1.TrustRejected, Message: "401 x",
			ClientCertSecret: frontProxyName, ClientCertTarget: testTarget}},
		"too old": {func(b *bench) StatusInput {
			trust := probed(v1.TrustTrusted, "")
			trust.LastProbe = testNow.Add(-maxTrustAge - 1)
			return StatusInput{Cluster: compiled(b.t, inFrontProxy), Trust: trust}
		}, "/clusters/team-a/prod", "", false, v1.UpstreamAuthStatus{Mode: "FrontProxy", ClientCertSecret: frontProxyName, ClientCertTarget: testTarget}},
		"unknown mode": {func(b *bench) StatusInput {
			return StatusInput{Cluster: compiled(b.t, func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth = &v1.UpstreamAuth{Mode: "Future"} })}
		}, "/clusters/team-a/prod", "this proxy replica cannot serve upstream mode Future yet", false, v1.UpstreamAuthStatus{Mode: "Future"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := test.in(newBench(t))
			in.Now = testNow
			s := BuildStatus(in)
			if orDefault(s.Path, "") != test.path || orDefault(s.Error, "") != test.errText || s.Exposed != test.exposed {
				t.Errorf("path %q, error %q, exposed %v", orDefault(s.Path, ""), orDefault(s.Error, ""), s.Exposed)
			}
			got := *s.UpstreamAuth
			got.TrustSince, got.LastProbe, got.ClientCertNotAfter = nil, nil, nil
			if diff := cmp.Diff(test.upstream, got); diff != "" {
				t.Error(diff)
			}
			if s.Conditions[0].Type != ConditionReady {
				t.Error("Ready does not come first")
			}
		})
	}
}

func TestNotices(t *testing.T) { // REC-6
	unavailable := notice(NoticeIssuerUnavailable, "https://idp: timed out")
	c := compiled(t, inFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.VirtualAPIs = []v1.VirtualAPI{{Kind: "OpenShiftProject"}} })
	s := BuildStatus(StatusInput{Cluster: c, Trust: probed(v1.TrustUnknown, "dial tcp"), Notices: []Condition{unavailable}, Now: testNow})
	var kinds []string
	for _, c := range s.Conditions {
		kinds = append(kinds, c.Type)
		if c.Type != ConditionReady && (c.Status != metav1.ConditionTrue || c.Reason != c.Type) {
			t.Errorf("notice %+v", c)
		}
	}
	want := []string{ConditionReady, NoticeIssuerUnavailable, NoticeUnsupportedField, NoticeUpstreamTrustUnknown}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	if n := condition(s, NoticeUpstreamTrustUnknown); n.Message != "dial tcp" {
		t.Errorf("notice %+v", n)
	}
	if s := BuildStatus(StatusInput{Cluster: c, Trust: probed(v1.TrustTrusted, ""), Previous: s, Now: testNow}); len(s.Conditions) != 2 {
		t.Errorf("what applies no more is left: %+v", s.Conditions)
	}
}

func TestPreparationInTheStatus(t *testing.T) { // REC-7
	tests := map[string]struct {
		change  func(*v1.ProxyKubeApiSpec)
		trust   TrustState
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"prepared":    {inPreparation, probed(v1.TrustTrusted, ""), "False", ReasonPrepared, "nothing stops upstream mode FrontProxy"},
		"not probed":  {inPreparation, TrustState{}, "True", ConditionFrontProxyNotReady, "UpstreamTrustUnknown: no verdict of the last 15 minutes"},
		"unknown":     {inPreparation, probed(v1.TrustUnknown, ""), "True", ConditionFrontProxyNotReady, "UpstreamTrustUnknown: the probe did not conclude"},
		"unknown why": {inPreparation, probed(v1.TrustUnknown, "dial"), "True", ConditionFrontProxyNotReady, "UpstreamTrustUnknown: dial"},
		"rejected":    {inPreparation, probed(v1.TrustRejected, "401"), "True", ConditionFrontProxyNotReady, "FrontProxyNotTrusted: 401"},
		"not honoured, and more": {func(s *v1.ProxyKubeApiSpec) { inPreparation(s); s.Enabled = ptr(true); s.ClientCert = &v1.ClientCert{} }, probed(v1.TrustNotHonoured, "saw x"), "True", ConditionFrontProxyNotReady,
			"InvalidSpec: spec.client_cert: client_cert cannot be used with FrontProxy; UpstreamIdentityNotHonoured: saw x"},
		"no verdict possible": {func(s *v1.ProxyKubeApiSpec) { inPreparation(s); s.UpstreamAuth.GroupPrefix = nil }, probed(v1.TrustTrusted, ""), "True", ConditionFrontProxyNotReady,
			"InvalidSpec: spec.upstream_auth.group_prefix: group_prefix is required"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := compiled(t, test.change)
			got := condition(BuildStatus(StatusInput{Cluster: c, Trust: test.trust, Now: testNow}), ConditionFrontProxyNotReady)
			if got == nil || got.Status != test.status || got.Reason != test.reason || got.Message != test.message {
				t.Errorf("%+v", got)
			}
		})
	}
	for name, c := range map[string]*Cluster{"Passthrough": compiled(t), "FrontProxy": compiled(t, inFrontProxy)} {
		if got := condition(BuildStatus(StatusInput{Cluster: c, Now: testNow}), ConditionFrontProxyNotReady); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestTransitionTimes(t *testing.T) {
	c := compiled(t, inFrontProxy)
	in := StatusInput{Cluster: c, Trust: probed(v1.TrustTrusted, ""), Now: testNow}
	first := BuildStatus(in)
	in.Previous, in.Now = first, testNow.Add(time.Minute)
	in.Trust = probed(v1.TrustRejected, "401")
	second := BuildStatus(in)
	if got := condition(second, ConditionReady).LastTransitionTime; !got.Time.Equal(in.Now) {
		t.Errorf("a changed status keeps its time: %v", got)
	}
	in.Previous, in.Now = second, testNow.Add(2*time.Minute)
	in.Trust = probed(v1.TrustNotHonoured, "x")
	third := BuildStatus(in)
	if got := condition(third, ConditionReady); got.Reason != ReasonUpstreamIdentityNotHonoured || !got.LastTransitionTime.Equal(&condition(second, ConditionReady).LastTransitionTime) {
		t.Errorf("the time moves with the reason: %+v", got)
	}
}

func TestLastProbeIsWrittenRarely(t *testing.T) { // REC-4
	c := compiled(t, inFrontProxy)
	in := StatusInput{Cluster: c, Trust: TrustState{Trust: v1.TrustTrusted, Since: testNow, LastProbe: testNow}, Now: testNow}
	status := BuildStatus(in)
	written := 0
	for minute := 1; minute <= 20; minute++ {
		in.Previous, in.Now = status, testNow.Add(time.Duration(minute)*time.Minute)
		in.Trust.LastProbe = in.Now
		// A new leader counts from its own start.
		in.Trust.Since = in.Now
		next := BuildStatus(in)
		if !SameStatus(status, next) {
			written++
		}
		if !next.UpstreamAuth.TrustSince.Time.Equal(testNow) {
			t.Fatalf("trustSince moved to %v", next.UpstreamAuth.TrustSince)
		}
		status = next
	}
	if written != 4 {
		t.Errorf("written %d times in 20 minutes, want 4", written)
	}
	in.Previous, in.Trust.Trust = status, v1.TrustUnknown
	in.Now = in.Now.Add(time.Minute)
	in.Trust.Since, in.Trust.LastProbe = in.Now, in.Now
	next := BuildStatus(in).UpstreamAuth
	if !next.LastProbe.Time.Equal(in.Now) || !next.TrustSince.Time.Equal(in.Now) {
		t.Errorf("a change of verdict is not written at once: %+v", next)
	}
}

func TestReachableStaysWhileUnknown(t *testing.T) {
	c := compiled(t)
	in := StatusInput{Cluster: c, Reachable: &Condition{Type: ConditionReachable, Status: StatusTrue, Reason: "Answered"}, Now: testNow}
	first := BuildStatus(in)
	in.Previous, in.Reachable, in.Now = first, nil, testNow.Add(time.Hour)
	if next := BuildStatus(in); !SameStatus(first, next) || !next.Exposed {
		t.Errorf("status %+v", next)
	}
	for name, change := range map[string]func(){
		"nothing known":         func() { in.Previous = nil },
		"nobody can be asked":   func() { unknown := *c; unknown.TargetKnown = false; in.Cluster = &unknown },
		"a reason of no answer": func() { in.Previous.Conditions[len(in.Previous.Conditions)-1].Reason = "Forged" },
	} {
		in.Cluster, in.Previous = c, first.DeepCopy()
		change()
		if next := BuildStatus(in); next.Exposed || condition(next, ConditionReachable) != nil {
			t.Errorf("%s: status %+v", name, next)
		}
	}
}

func TestTrustRefusalInStatus(t *testing.T) { // TRUST-4
	status := func(kind, reason string, s metav1.ConditionStatus) *v1.ProxyKubeApiStatus {
		return &v1.ProxyKubeApiStatus{Conditions: []metav1.Condition{{Type: kind, Reason: reason, Status: s, Message: "m\n"}}}
	}
	tests := map[string]struct {
		status *v1.ProxyKubeApiStatus
		want   string
	}{
		"nothing":      {nil, ""},
		"empty":        {&v1.ProxyKubeApiStatus{}, ""},
		"rejected":     {status("Ready", ReasonFrontProxyNotTrusted, "False"), ReasonFrontProxyNotTrusted},
		"not honoured": {status("Ready", ReasonUpstreamIdentityNotHonoured, "False"), ReasonUpstreamIdentityNotHonoured},
		"an identity":  {status("Ready", ReasonClientCertIsIdentity, "False"), ReasonClientCertIsIdentity},
		"True":         {status("Ready", ReasonFrontProxyNotTrusted, "True"), ""},
		"other reason": {status("Ready", ReasonDisabled, "False"), ""},
		"other type":   {status("Reachable", ReasonFrontProxyNotTrusted, "False"), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := TrustRefusalInStatus(test.status)
			if ok != (test.want != "") || got.Reason != test.want || ok && (got.Status != StatusFalse || got.Message != "m ") {
				t.Errorf("%+v, %v", got, ok)
			}
		})
	}
}

// Whatever the cluster and its verdict: a status is stable, survives JSON, and
// never says that a cluster is ready that a request would find closed.
func TestStatusProperties(t *testing.T) {
	clusters := []*Cluster{
		compiled(t), compiled(t, inFrontProxy), compiled(t, inPreparation),
		compiled(t, inFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.Enabled = ptr(false) }),
		compiled(t, inFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth.UserPrefix = nil }),
	}
	draw := func(t *rapid.T, previous *v1.ProxyKubeApiStatus) StatusInput {
		in := StatusInput{
			Cluster:  clusters[rapid.IntRange(0, len(clusters)-1).Draw(t, "cluster")],
			Previous: previous,
			Now:      testNow.Add(time.Duration(rapid.IntRange(0, 100_000).Draw(t, "ms")) * time.Millisecond),
		}
		if trust := rapid.SampledFrom([]v1.Trust{"", v1.TrustTrusted, v1.TrustRejected, v1.TrustNotHonoured, v1.TrustUnknown}).Draw(t, "trust"); trust != "" {
			in.Trust = TrustState{Trust: trust, Message: rapid.String().Draw(t, "message"),
				LastProbe: in.Now.Add(-time.Duration(rapid.IntRange(0, 1200).Draw(t, "age")) * time.Second)}
			in.Trust.Since = in.Trust.LastProbe
		}
		if s := rapid.SampledFrom([]string{"", StatusTrue, StatusFalse, StatusUnknown}).Draw(t, "reachable"); s != "" {
			in.Reachable = &Condition{Type: ConditionReachable, Status: s, Reason: "Answered"}
		}
		return in
	}
	rapid.Check(t, func(t *rapid.T) {
		previous := BuildStatus(draw(t, nil))
		in := draw(t, previous)
		status := BuildStatus(in)
		data, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		var read *v1.ProxyKubeApiStatus
		if err := json.Unmarshal(data, &read); err != nil {
			t.Fatal(err)
		}
		if !SameStatus(status, read) {
			t.Fatalf("JSON changes %s", data)
		}
		in.Previous = read
		if again := BuildStatus(in); !SameStatus(status, again) {
			t.Fatalf("writing it changes it: %s", cmp.Diff(status, again))
		}
		ready, effective := status.Conditions[0], EffectiveReady(in.Cluster, in.Trust)
		if string(ready.Status) != effective.Status || ready.Reason != effective.Reason {
			t.Fatalf("the status says %+v, a request meets %+v", ready, effective)
		}
		if (status.Error != nil) != (ready.Status != metav1.ConditionTrue) {
			t.Fatalf("error %v with %+v", status.Error, ready)
		}
		seen := map[string]bool{}
		for _, c := range status.Conditions {
			if seen[c.Type] || strings.ContainsAny(c.Message, "\n\r") || len(c.Message) > maxMessage {
				t.Fatalf("condition %+v", c)
			}
			seen[c.Type] = true
		}
	})
}
