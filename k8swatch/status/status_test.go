package status

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/compile"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// compiled makes a cluster with a good certificate.
func compiled(t testing.TB, change ...func(*v1.ProxyKubeApiSpec)) *k8swatch.Cluster {
	t.Helper()
	store := k8stest.NewMemory()
	store.Secrets[k8swatch.Key{Namespace: k8stest.ProxyNamespace, Name: k8stest.FrontProxyName}] = k8stest.FrontProxySecret(k8stest.Certificate(t))
	store.Objects[k8stest.Key] = &k8swatch.Object{ProxyKubeApi: k8stest.Object(change...)}
	return compileFrom(t, store)
}

// bare compiles an object around which nothing else is there.
func bare(t testing.TB, object k8swatch.Object) *k8swatch.Cluster {
	t.Helper()
	store := k8stest.NewMemory()
	store.Objects[k8stest.Key] = &object
	return compileFrom(t, store)
}

func compileFrom(t testing.TB, store *k8stest.Memory) *k8swatch.Cluster {
	t.Helper()
	c, _ := compile.New(compile.Options{
		Namespace:    k8stest.ProxyNamespace,
		AllowedModes: []v1.UpstreamMode{v1.ModePassthrough, v1.ModeFrontProxy},
		Revalidate:   k8stest.RevalidatePrefixes,
		Now:          func() time.Time { return k8stest.Now },
	}).Compile(store, k8stest.Key, compile.Carried{})
	if c == nil {
		t.Fatal("nothing was compiled")
	}
	return c
}

func probed(trust v1.Trust, message string) TrustState {
	return TrustState{Trust: trust, Since: k8stest.Now.Add(-time.Hour), LastProbe: k8stest.Now.Add(-time.Minute), Message: message}
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
	old.LastProbe = k8stest.Now.Add(-24 * time.Hour)
	tests := map[string]struct {
		change []func(*v1.ProxyKubeApiSpec)
		trust  TrustState
		reason string
	}{
		"Trusted":                       {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy}, probed(v1.TrustTrusted, ""), k8swatch.ReasonServing},
		"not probed":                    {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy}, TrustState{}, k8swatch.ReasonServing},
		"Unknown":                       {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy}, probed(v1.TrustUnknown, ""), k8swatch.ReasonServing},
		"Rejected":                      {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy}, probed(v1.TrustRejected, ""), k8swatch.ReasonFrontProxyNotTrusted},
		"Rejected, long ago":            {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy}, old, k8swatch.ReasonFrontProxyNotTrusted},
		"NotHonoured":                   {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy}, probed(v1.TrustNotHonoured, ""), k8swatch.ReasonUpstreamIdentityNotHonoured},
		"a verdict of later times":      {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy}, probed("Doubtful", ""), k8swatch.ReasonServing},
		"Rejected in preparation":       {[]func(*v1.ProxyKubeApiSpec){k8stest.InPreparation}, probed(v1.TrustRejected, ""), k8swatch.ReasonServing},
		"Rejected in plain Passthrough": {nil, probed(v1.TrustRejected, ""), k8swatch.ReasonServing},
		"unproven":                      {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy}, TrustState{Unproven: "no answer"}, k8swatch.ReasonUpstreamTrustUnknown},
		"unproven and rejected": {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy}, TrustState{Trust: v1.TrustRejected, Unproven: "no answer"},
			k8swatch.ReasonFrontProxyNotTrusted},
		"unproven, closed by the object": {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.Enabled = ptr.To(false) }},
			TrustState{Unproven: "no answer"}, k8swatch.ReasonDisabled},
		"another reason comes first": {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.Enabled = ptr.To(false) }},
			probed(v1.TrustRejected, ""), k8swatch.ReasonDisabled},
		"Trusted opens nothing": {[]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.ProxyGroup = ptr.To("") }},
			probed(v1.TrustTrusted, ""), k8swatch.ReasonInvalidSpec},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := compiled(t, test.change...)
			got := EffectiveReady(c, test.trust)
			if got.Type != k8swatch.ConditionReady || got.Reason != test.reason || got.Message == "" || (got.Status == k8swatch.StatusTrue) != (test.reason == k8swatch.ReasonServing) ||
				(got.Status == k8swatch.StatusUnknown) != (test.reason == k8swatch.ReasonUpstreamTrustUnknown) {
				t.Errorf("%+v, want %s", got, test.reason)
			}
		})
	}
	c := compiled(t, k8stest.InFrontProxy)
	if got := EffectiveReady(c, probed(v1.TrustNotHonoured, "the apiserver saw \"x\"\n")); got.Message != `the apiserver saw "x" ` {
		t.Errorf("message %q", got.Message)
	}
}

func TestStatusOfAServedCluster(t *testing.T) { // REC-3
	reachable := k8swatch.Condition{Type: k8swatch.ConditionReachable, Status: k8swatch.StatusTrue, Reason: "Answered", Message: "200"}
	c := compiled(t, k8stest.InFrontProxy)
	got := Build(Input{Cluster: c, Trust: probed(v1.TrustTrusted, ""), Reachable: &reachable, Now: k8stest.Now.Add(time.Millisecond)})
	now := metav1.NewTime(k8stest.Now)
	want := &v1.ProxyKubeApiStatus{
		Exposed: true, Path: ptr.To("/clusters/team-a/prod"), ObservedGeneration: 7,
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: "True", Reason: "Serving", Message: "the cluster is served", ObservedGeneration: 7, LastTransitionTime: now},
			{Type: "Reachable", Status: "True", Reason: "Answered", Message: "200", ObservedGeneration: 7, LastTransitionTime: now},
		},
		UpstreamAuth: &v1.UpstreamAuthStatus{
			Mode: "FrontProxy", Trust: v1.TrustTrusted,
			TrustSince: &metav1.Time{Time: k8stest.Now.Add(-time.Hour)}, LastProbe: &metav1.Time{Time: k8stest.Now.Add(-time.Minute)},
			ClientCertSecret: k8stest.FrontProxyName, ClientCertTarget: k8stest.Target, ClientCertNotAfter: &metav1.Time{Time: k8stest.Now.Add(23 * time.Hour)},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestStatusFields(t *testing.T) { // REC-3
	const updateRefused = "spec.service: exactly one"
	tests := map[string]struct {
		in            func(testing.TB) Input
		path, errText string
		exposed       bool
		upstream      v1.UpstreamAuthStatus
	}{
		"plain Passthrough": {func(t testing.TB) Input { return Input{Cluster: compiled(t)} },
			"/clusters/team-a/prod", "", false, v1.UpstreamAuthStatus{Mode: "Passthrough"}},
		"disabled": {func(t testing.TB) Input {
			return Input{Cluster: compiled(t, func(s *v1.ProxyKubeApiSpec) { s.Enabled = ptr.To(false) }),
				Reachable: &k8swatch.Condition{Type: k8swatch.ConditionReachable, Status: k8swatch.StatusTrue}}
		}, "", "spec.enabled is false", false, v1.UpstreamAuthStatus{Mode: "Passthrough"}},
		"not reachable": {func(t testing.TB) Input {
			return Input{Cluster: compiled(t), Reachable: &k8swatch.Condition{Type: k8swatch.ConditionReachable, Status: k8swatch.StatusFalse, Reason: "ConnectFailed"}}
		}, "/clusters/team-a/prod", "", false, v1.UpstreamAuthStatus{Mode: "Passthrough"}},
		"update refused": {func(t testing.TB) Input {
			return Input{Cluster: bare(t, k8swatch.Object{ProxyKubeApi: k8stest.Object(), UpdateRefused: updateRefused})}
		}, "/clusters/team-a/prod", updateRefused, false, v1.UpstreamAuthStatus{Mode: "Passthrough"}},
		"update refused and not ready": {func(t testing.TB) Input {
			return Input{Cluster: bare(t, k8swatch.Object{ProxyKubeApi: k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.Enabled = ptr.To(false) }), UpdateRefused: updateRefused})}
		}, "", "spec.enabled is false", false, v1.UpstreamAuthStatus{Mode: "Passthrough"}},
		"no certificate": {func(t testing.TB) Input {
			return Input{Cluster: bare(t, k8swatch.Object{ProxyKubeApi: k8stest.Object(k8stest.InFrontProxy)}), Trust: probed(v1.TrustTrusted, "")}
		}, "/clusters/team-a/prod", "Secret proxyauth/" + k8stest.FrontProxyName + " does not exist", false,
			v1.UpstreamAuthStatus{Mode: "FrontProxy", ClientCertSecret: k8stest.FrontProxyName, ClientCertTarget: k8stest.Target}},
		"rejected": {func(t testing.TB) Input {
			return Input{Cluster: compiled(t, k8stest.InFrontProxy), Trust: probed(v1.TrustRejected, "401 x")}
		}, "/clusters/team-a/prod", "401 x", false, v1.UpstreamAuthStatus{Mode: "FrontProxy", Trust: v1.TrustRejected, Message: "401 x",
			ClientCertSecret: k8stest.FrontProxyName, ClientCertTarget: k8stest.Target}},
		"too old": {func(t testing.TB) Input {
			trust := probed(v1.TrustTrusted, "")
			trust.LastProbe = k8stest.Now.Add(-maxTrustAge - 1)
			return Input{Cluster: compiled(t, k8stest.InFrontProxy), Trust: trust}
		}, "/clusters/team-a/prod", "", false, v1.UpstreamAuthStatus{Mode: "FrontProxy", ClientCertSecret: k8stest.FrontProxyName, ClientCertTarget: k8stest.Target}},
		"unknown mode": {func(t testing.TB) Input {
			return Input{Cluster: compiled(t, func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth = &v1.UpstreamAuth{Mode: "Future"} })}
		}, "/clusters/team-a/prod", "this proxy replica cannot serve upstream mode Future yet", false, v1.UpstreamAuthStatus{Mode: "Future"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := test.in(t)
			in.Now = k8stest.Now
			s := Build(in)
			if ptr.Deref(s.Path, "") != test.path || ptr.Deref(s.Error, "") != test.errText || s.Exposed != test.exposed {
				t.Errorf("path %q, error %q, exposed %v", ptr.Deref(s.Path, ""), ptr.Deref(s.Error, ""), s.Exposed)
			}
			got := *s.UpstreamAuth
			got.TrustSince, got.LastProbe, got.ClientCertNotAfter = nil, nil, nil
			if diff := cmp.Diff(test.upstream, got); diff != "" {
				t.Error(diff)
			}
			if s.Conditions[0].Type != k8swatch.ConditionReady {
				t.Error("Ready does not come first")
			}
		})
	}
}

func TestNotices(t *testing.T) { // REC-6
	unavailable := k8swatch.Notice(k8swatch.NoticeIssuerUnavailable, "https://idp: timed out")
	c := compiled(t, k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.VirtualAPIs = []v1.VirtualAPI{{Kind: "OpenShiftProject"}} })
	s := Build(Input{Cluster: c, Trust: probed(v1.TrustUnknown, "dial tcp"), Notices: []k8swatch.Condition{unavailable}, Now: k8stest.Now})
	var kinds []string
	for _, c := range s.Conditions {
		kinds = append(kinds, c.Type)
		if c.Type != k8swatch.ConditionReady && (c.Status != metav1.ConditionTrue || c.Reason != c.Type) {
			t.Errorf("notice %+v", c)
		}
	}
	want := []string{k8swatch.ConditionReady, k8swatch.NoticeIssuerUnavailable, k8swatch.NoticeUnsupportedField, k8swatch.NoticeUpstreamTrustUnknown}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	if n := condition(s, k8swatch.NoticeUpstreamTrustUnknown); n.Message != "dial tcp" {
		t.Errorf("notice %+v", n)
	}
	if s := Build(Input{Cluster: c, Trust: probed(v1.TrustTrusted, ""), Previous: s, Now: k8stest.Now}); len(s.Conditions) != 2 {
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
		"prepared":    {k8stest.InPreparation, probed(v1.TrustTrusted, ""), "False", k8swatch.ReasonPrepared, "nothing stops upstream mode FrontProxy"},
		"not probed":  {k8stest.InPreparation, TrustState{}, "True", k8swatch.ConditionFrontProxyNotReady, "UpstreamTrustUnknown: no verdict of the last 15 minutes"},
		"unknown":     {k8stest.InPreparation, probed(v1.TrustUnknown, ""), "True", k8swatch.ConditionFrontProxyNotReady, "UpstreamTrustUnknown: the probe did not conclude"},
		"unknown why": {k8stest.InPreparation, probed(v1.TrustUnknown, "dial"), "True", k8swatch.ConditionFrontProxyNotReady, "UpstreamTrustUnknown: dial"},
		"rejected":    {k8stest.InPreparation, probed(v1.TrustRejected, "401"), "True", k8swatch.ConditionFrontProxyNotReady, "FrontProxyNotTrusted: 401"},
		"not honoured, and more": {func(s *v1.ProxyKubeApiSpec) {
			k8stest.InPreparation(s)
			s.Enabled = ptr.To(true)
			s.ClientCert = &v1.ClientCert{}
		}, probed(v1.TrustNotHonoured, "saw x"), "True", k8swatch.ConditionFrontProxyNotReady,
			"InvalidSpec: spec.client_cert: client_cert cannot be used with FrontProxy; UpstreamIdentityNotHonoured: saw x"},
		"no verdict possible": {func(s *v1.ProxyKubeApiSpec) { k8stest.InPreparation(s); s.UpstreamAuth.GroupPrefix = nil }, probed(v1.TrustTrusted, ""), "True", k8swatch.ConditionFrontProxyNotReady,
			"InvalidSpec: spec.upstream_auth.group_prefix: group_prefix is required"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := compiled(t, test.change)
			got := condition(Build(Input{Cluster: c, Trust: test.trust, Now: k8stest.Now}), k8swatch.ConditionFrontProxyNotReady)
			if got == nil || got.Status != test.status || got.Reason != test.reason || got.Message != test.message {
				t.Errorf("%+v", got)
			}
		})
	}
	for name, c := range map[string]*k8swatch.Cluster{"Passthrough": compiled(t), "FrontProxy": compiled(t, k8stest.InFrontProxy)} {
		if got := condition(Build(Input{Cluster: c, Now: k8stest.Now}), k8swatch.ConditionFrontProxyNotReady); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestTransitionTimes(t *testing.T) {
	c := compiled(t, k8stest.InFrontProxy)
	in := Input{Cluster: c, Trust: probed(v1.TrustTrusted, ""), Now: k8stest.Now}
	first := Build(in)
	in.Previous, in.Now = first, k8stest.Now.Add(time.Minute)
	in.Trust = probed(v1.TrustRejected, "401")
	second := Build(in)
	if got := condition(second, k8swatch.ConditionReady).LastTransitionTime; !got.Time.Equal(in.Now) {
		t.Errorf("a changed status keeps its time: %v", got)
	}
	in.Previous, in.Now = second, k8stest.Now.Add(2*time.Minute)
	in.Trust = probed(v1.TrustNotHonoured, "x")
	third := Build(in)
	if got := condition(third, k8swatch.ConditionReady); got.Reason != k8swatch.ReasonUpstreamIdentityNotHonoured || !got.LastTransitionTime.Equal(&condition(second, k8swatch.ConditionReady).LastTransitionTime) {
		t.Errorf("the time moves with the reason: %+v", got)
	}
}

func TestLastProbeIsWrittenRarely(t *testing.T) { // REC-4
	c := compiled(t, k8stest.InFrontProxy)
	in := Input{Cluster: c, Trust: TrustState{Trust: v1.TrustTrusted, Since: k8stest.Now, LastProbe: k8stest.Now}, Now: k8stest.Now}
	status := Build(in)
	written := 0
	for minute := 1; minute <= 20; minute++ {
		in.Previous, in.Now = status, k8stest.Now.Add(time.Duration(minute)*time.Minute)
		in.Trust.LastProbe = in.Now
		// A new leader counts from its own start.
		in.Trust.Since = in.Now
		next := Build(in)
		if !Same(status, next) {
			written++
		}
		if !next.UpstreamAuth.TrustSince.Time.Equal(k8stest.Now) {
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
	next := Build(in).UpstreamAuth
	if !next.LastProbe.Time.Equal(in.Now) || !next.TrustSince.Time.Equal(in.Now) {
		t.Errorf("a change of verdict is not written at once: %+v", next)
	}
}

func TestReachableStaysWhileUnknown(t *testing.T) {
	c := compiled(t)
	in := Input{Cluster: c, Reachable: &k8swatch.Condition{Type: k8swatch.ConditionReachable, Status: k8swatch.StatusTrue, Reason: "Answered"}, Now: k8stest.Now}
	first := Build(in)
	in.Previous, in.Reachable, in.Now = first, nil, k8stest.Now.Add(time.Hour)
	if next := Build(in); !Same(first, next) || !next.Exposed {
		t.Errorf("status %+v", next)
	}
	for name, change := range map[string]func(){
		"nothing known":         func() { in.Previous = nil },
		"nobody can be asked":   func() { unknown := *c; unknown.TargetKnown = false; in.Cluster = &unknown },
		"a reason of no answer": func() { in.Previous.Conditions[len(in.Previous.Conditions)-1].Reason = "Forged" },
	} {
		in.Cluster, in.Previous = c, first.DeepCopy()
		change()
		if next := Build(in); next.Exposed || condition(next, k8swatch.ConditionReachable) != nil {
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
		"rejected":     {status("Ready", k8swatch.ReasonFrontProxyNotTrusted, "False"), k8swatch.ReasonFrontProxyNotTrusted},
		"not honoured": {status("Ready", k8swatch.ReasonUpstreamIdentityNotHonoured, "False"), k8swatch.ReasonUpstreamIdentityNotHonoured},
		"an identity":  {status("Ready", k8swatch.ReasonClientCertIsIdentity, "False"), k8swatch.ReasonClientCertIsIdentity},
		"True":         {status("Ready", k8swatch.ReasonFrontProxyNotTrusted, "True"), ""},
		"other reason": {status("Ready", k8swatch.ReasonDisabled, "False"), ""},
		"other type":   {status("Reachable", k8swatch.ReasonFrontProxyNotTrusted, "False"), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := TrustRefusal(test.status)
			if ok != (test.want != "") || got.Reason != test.want || ok && (got.Status != k8swatch.StatusFalse || got.Message != "m ") {
				t.Errorf("%+v, %v", got, ok)
			}
		})
	}
}

// Whatever the cluster and its verdict: a status is stable, survives JSON, and
// never says that a cluster is ready that a request would find closed.
func TestStatusProperties(t *testing.T) {
	clusters := []*k8swatch.Cluster{
		compiled(t), compiled(t, k8stest.InFrontProxy), compiled(t, k8stest.InPreparation),
		compiled(t, k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.Enabled = ptr.To(false) }),
		compiled(t, k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth.UserPrefix = nil }),
	}
	draw := func(t *rapid.T, previous *v1.ProxyKubeApiStatus) Input {
		in := Input{
			Cluster:  clusters[rapid.IntRange(0, len(clusters)-1).Draw(t, "cluster")],
			Previous: previous,
			Now:      k8stest.Now.Add(time.Duration(rapid.IntRange(0, 100_000).Draw(t, "ms")) * time.Millisecond),
		}
		if trust := rapid.SampledFrom([]v1.Trust{"", v1.TrustTrusted, v1.TrustRejected, v1.TrustNotHonoured, v1.TrustUnknown}).Draw(t, "trust"); trust != "" {
			in.Trust = TrustState{Trust: trust, Message: rapid.String().Draw(t, "message"),
				LastProbe: in.Now.Add(-time.Duration(rapid.IntRange(0, 1200).Draw(t, "age")) * time.Second)}
			in.Trust.Since = in.Trust.LastProbe
		}
		in.Trust.Unproven = rapid.SampledFrom([]string{"", "no answer"}).Draw(t, "unproven")
		in.ObservedBy = rapid.SampledFrom([]string{"", "a/l", "b/l"}).Draw(t, "observedBy")
		if s := rapid.SampledFrom([]string{"", k8swatch.StatusTrue, k8swatch.StatusFalse, k8swatch.StatusUnknown}).Draw(t, "reachable"); s != "" {
			in.Reachable = &k8swatch.Condition{Type: k8swatch.ConditionReachable, Status: s, Reason: "Answered"}
		}
		return in
	}
	rapid.Check(t, func(t *rapid.T) {
		previous := Build(draw(t, nil))
		in := draw(t, previous)
		status := Build(in)
		data, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		var read *v1.ProxyKubeApiStatus
		if err := json.Unmarshal(data, &read); err != nil {
			t.Fatal(err)
		}
		if !Same(status, read) {
			t.Fatalf("JSON changes %s", data)
		}
		in.Previous = read
		if again := Build(in); !Same(status, again) {
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
			if seen[c.Type] || strings.ContainsAny(c.Message, "\n\r") || len(c.Message) > k8swatch.MaxMessage {
				t.Fatalf("condition %+v", c)
			}
			seen[c.Type] = true
		}
	})
}
