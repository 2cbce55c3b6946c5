package hub

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func TestAReferenceIsReadAgain(t *testing.T) {
	ca := secretID("team-a", "ca")
	for _, tt := range []struct {
		name            string
		ttl             time.Duration
		atLeast, atMost time.Duration
	}{
		{"by default", 0, 36 * time.Second, 45 * time.Second},
		{"at most every 45 seconds", 300 * time.Second, 36 * time.Second, 45 * time.Second},
		{"as told", 10 * time.Second, 8 * time.Second, 10 * time.Second},
		{"never more than once a second", time.Nanosecond, 800 * time.Millisecond, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inHub(t, func(o *Options) { o.ReferenceTTL = tt.ttl }, func(h *testHub) {
				h.answerWith(ca, h.secret("ca", "A", false), nil)
				h.event(k8stest.Key, "1", specWithCA("ca"))
				synctest.Wait()
				h.changes()
				h.answerWith(ca, h.secret("ca", "B", false), nil)
				time.Sleep(tt.atLeast - time.Nanosecond)
				synctest.Wait()
				if got := secretText(h.Secret("team-a", "ca")); got != "A" || h.times(ca) != 1 {
					t.Errorf("read before the time: %s, %d reads", got, h.times(ca))
				}
				time.Sleep(tt.atMost - tt.atLeast + time.Millisecond)
				synctest.Wait()
				if got := secretText(h.Secret("team-a", "ca")); got != "B" {
					t.Errorf("not read in time: %s", got)
				}
				if diff := cmp.Diff([]string{"Secret team-a/ca"}, h.changes()); diff != "" {
					t.Error(diff)
				}
				// Nothing is told while nothing changes.
				time.Sleep(3 * tt.atMost)
				synctest.Wait()
				if diff := cmp.Diff([]string(nil), h.changes()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// CRD-02: a right that was taken away shows within a minute, and one that was
// granted again without a restart.
func TestAReadThatFailsIsTriedAgain(t *testing.T) {
	ca := secretID("team-a", "ca")
	inHub(t, nil, func(h *testHub) {
		h.answerWith(ca, h.secret("ca", "A", false), nil)
		h.event(k8stest.Key, "1", specWithCA("ca"))
		synctest.Wait()
		h.answerWith(ca, nil, k8stest.ErrForbidden())
		time.Sleep(maxReferenceTTL)
		synctest.Wait()
		if got := secretText(h.Secret("team-a", "ca")); got != "forbidden" {
			t.Fatalf("without the right: %s", got)
		}
		h.changes()
		before := h.times(ca)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := h.times(ca) - before; n < 20 || n > 28 {
			t.Errorf("%d reads in ten minutes without the right", n)
		}
		if diff := cmp.Diff([]string(nil), h.changes()); diff != "" {
			t.Error(diff)
		}
		h.answerWith(ca, h.secret("ca", "B", false), nil)
		time.Sleep(lastRetry)
		synctest.Wait()
		if got := secretText(h.Secret("team-a", "ca")); got != "B" {
			t.Errorf("with the right again: %s", got)
		}
		// The next failure is tried again soon, not after the long pause.
		h.answerWith(ca, nil, errors.New("no route"))
		for deadline := time.Now().Add(maxReferenceTTL); secretText(h.Secret("team-a", "ca")) != "the read failed" && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		before = h.times(ca)
		time.Sleep(firstRetry)
		synctest.Wait()
		if h.times(ca) == before {
			t.Error("no read within five seconds of a failure")
		}
	})
}

func TestAHubThatDoesNotAnswerIsAskedWithinBounds(t *testing.T) {
	inHub(t, nil, func(h *testHub) {
		for i := range 200 {
			name := fmt.Sprint("ca-", i)
			h.stick(secretID("team-a", name), true)
			h.event(k8swatch.Key{Namespace: "team-a", Name: name}, "1", specWithCA(name))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if h.most != readers {
			t.Errorf("%d reads at once, want %d", h.most, readers)
		}
		if n := len(h.Keys()); n != 200 {
			t.Errorf("%d objects shown", n)
		}
		if got := secretText(h.Secret("team-a", "ca-0")); got != "the read failed" {
			t.Errorf("a read that never ends: %s", got)
		}
	})
}

func TestReferencesAreSharedAndForgotten(t *testing.T) {
	ca := secretID("team-a", "ca")
	inHub(t, nil, func(h *testHub) {
		h.answerWith(ca, h.secret("ca", "A", false), nil)
		second := k8swatch.Key{Namespace: "team-a", Name: "second"}
		h.event(k8stest.Key, "1", specWithCA("ca"))
		h.event(second, "2", specWithCA("ca"))
		synctest.Wait()
		if n := h.times(ca); n != 1 {
			t.Errorf("%d reads for two objects", n)
		}
		h.event(k8stest.Key, "1", specWithCA("other"))
		synctest.Wait()
		if got := secretText(h.Secret("team-a", "ca")); got != "A" {
			t.Errorf("a reference that one object still names: %s", got)
		}
		h.locked(func() { h.dropObject(second) })
		if got := secretText(h.Secret("team-a", "ca")); got != "the read failed" || len(h.references) != 1 {
			t.Errorf("a reference that no object names: %s", got)
		}
		before := h.times(ca)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if h.times(ca) != before {
			t.Error("a reference that no object names is read")
		}
	})
}

// CERT-1, CERT-5: the watch of the labelled Secrets decides, at once.
func TestALabelledSecretIsWhatTheWatchSays(t *testing.T) {
	id := secretID(k8stest.ProxyNamespace, k8stest.FrontProxyName)
	front := v1.ProxyKubeApiSpec{UpstreamAuth: &v1.UpstreamAuth{Mode: v1.ModeFrontProxy}}
	read := func(h *testHub) string { return secretText(h.Secret(k8stest.ProxyNamespace, k8stest.FrontProxyName)) }
	t.Run("in force and withdrawn", func(t *testing.T) {
		inHub(t, nil, func(h *testHub) {
			labelled := h.secret(k8stest.FrontProxyName, "A", true)
			h.answerWith(id, labelled, nil)
			h.locked(func() { h.putLabelled(k8stest.FrontProxyName, labelled) })
			h.event(k8stest.Key, "1", front)
			synctest.Wait()
			if got := read(h); got != "A" || h.times(id) != 0 {
				t.Errorf("labelled: %s, %d reads", got, h.times(id))
			}
			h.changes()
			// The copy that the API still gives by name must not count.
			h.locked(func() { h.putLabelled(k8stest.FrontProxyName, nil) })
			if got := read(h); got != "it does not exist" {
				t.Errorf("withdrawn: %s", got)
			}
			if diff := cmp.Diff([]string{"Secret proxyauth/" + k8stest.FrontProxyName}, h.changes()); diff != "" {
				t.Error(diff)
			}
			synctest.Wait()
			if got := read(h); got != "it does not exist" || h.times(id) == 0 {
				t.Errorf("withdrawn and read by name: %s, %d reads", got, h.times(id))
			}
		})
	})
	t.Run("without its label it is there to be told of", func(t *testing.T) {
		inHub(t, nil, func(h *testHub) {
			h.answerWith(id, h.secret(k8stest.FrontProxyName, "A", false), nil)
			h.event(k8stest.Key, "1", front)
			if h.Object(k8stest.Key) == nil {
				t.Error("the object waits for a Secret that is only looked at")
			}
			synctest.Wait()
			secret, err := h.Secret(k8stest.ProxyNamespace, k8stest.FrontProxyName)
			if err != nil || secret.Labels[k8swatch.ManagedByLabel] != "" {
				t.Fatalf("%v, %v", secret, err)
			}
			h.answerWith(id, nil, nil)
			h.locked(func() { h.putLabelled(k8stest.FrontProxyName, h.secret(k8stest.FrontProxyName, "B", true)) })
			h.locked(func() { h.putLabelled(k8stest.FrontProxyName, nil) })
			if got := read(h); got != "it does not exist" {
				t.Errorf("a copy from before the label: %s", got)
			}
		})
	})
	t.Run("a read by name that fails says nothing", func(t *testing.T) {
		inHub(t, nil, func(h *testHub) {
			h.answerWith(id, nil, k8stest.ErrForbidden())
			h.event(k8stest.Key, "1", front)
			synctest.Wait()
			if got := read(h); got != "it does not exist" {
				t.Errorf("%s", got)
			}
		})
	})
	t.Run("missing ones are not asked for often", func(t *testing.T) {
		inHub(t, nil, func(h *testHub) {
			h.event(k8stest.Key, "1", front)
			time.Sleep(10 * time.Minute)
			if n := h.times(id); n < 13 || n > 18 {
				t.Errorf("%d reads in ten minutes", n)
			}
		})
	})
	t.Run("unknown before the first list", func(t *testing.T) {
		inUnlistedHub(t, nil, func(h *testHub) {
			h.labelledSynced = false
			if got := read(h); got != "the read failed" {
				t.Errorf("%s", got)
			}
		})
	})
	t.Run("an object of the proxy's namespace that refers to it", func(t *testing.T) {
		inHub(t, nil, func(h *testHub) {
			ca := secretID(k8stest.ProxyNamespace, "ca")
			h.answerWith(ca, h.secret("ca", "A", true), nil)
			h.event(k8swatch.Key{Namespace: k8stest.ProxyNamespace, Name: "x"}, "1", specWithCA("ca"))
			synctest.Wait()
			if got := secretText(h.Secret(k8stest.ProxyNamespace, "ca")); got != "it does not exist" {
				t.Errorf("a labelled Secret by name: %s", got)
			}
		})
	})
}

func TestFollow(t *testing.T) {
	inHub(t, nil, func(h *testHub) {
		core, err := corev1client.NewForConfig(&rest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		h.core = core
		f := &followedSecret{}
		h.followed["tls"] = f
		watch := h.follow("tls", f)
		watch.known = map[k8swatch.Key]bool{}
		if _, err := h.Secret(k8stest.ProxyNamespace, "tls"); err == nil || apierrors.IsNotFound(err) {
			t.Errorf("before its first list: %v", err)
		}
		put := func(s *corev1.Secret) {
			t.Helper()
			s.Namespace = k8stest.ProxyNamespace
			if err := watch.Add(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := watch.Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
		if got := secretText(h.Secret(k8stest.ProxyNamespace, "tls")); got != "it does not exist" {
			t.Errorf("absent: %s", got)
		}
		put(h.secret("tls", "A", false))
		if got := secretText(h.Secret(k8stest.ProxyNamespace, "tls")); got != "A" {
			t.Errorf("made: %s", got)
		}
		if diff := cmp.Diff([]string{"Secret proxyauth/tls"}, h.changes()); diff != "" {
			t.Error(diff)
		}
		put(h.secret("tls", "B", true))
		if got := secretText(h.Secret(k8stest.ProxyNamespace, "tls")); got != "it does not exist" {
			t.Errorf("labelled, as only the other watch may tell: %s", got)
		}
	})
}
