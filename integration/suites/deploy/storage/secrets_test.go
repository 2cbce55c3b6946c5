package storage

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/secretstorage"
)

// What the Secrets look like to an administrator.
func TestSecrets(t *testing.T) {
	t.Parallel()
	p := newPlace(t, shared.Get(t))
	s := p.open()
	ctx := within(t)
	const key = "certificates/ca/*.example.com/*.example.com.key"
	must(t, s.Store(ctx, key, []byte("secret")))
	list, err := p.core(t).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=" + secretstorage.ManagedBy})
	must(t, err)
	if len(list.Items) != 1 {
		t.Fatalf("%d Secrets", len(list.Items))
	}
	secret := list.Items[0]
	if secret.Type != secretstorage.SecretType || secret.Annotations["storage.proxyauth.weebo.si.rs/key"] != key ||
		string(secret.Data["value"]) != "secret" || !strings.HasPrefix(secret.Name, "caddy-example-com-key-") {
		t.Errorf("%+v", secret.ObjectMeta)
	}

	// One that something else made is neither read nor overwritten.
	foreign := secret.DeepCopy()
	foreign.ObjectMeta = metav1.ObjectMeta{Name: secret.Name}
	foreign.Type = "Opaque"
	must(t, p.core(t).Delete(ctx, secret.Name, metav1.DeleteOptions{}))
	_, err = p.core(t).Create(ctx, foreign, metav1.CreateOptions{})
	must(t, err)
	_, err = s.Load(ctx, key)
	mustFail(t, err, "is not what this storage wrote")
	mustFail(t, s.Store(ctx, key, []byte("new")), "field is immutable")
}

func TestLargeValues(t *testing.T) {
	t.Parallel()
	p := newPlace(t, shared.Get(t))
	s := p.open()
	ctx := within(t)
	must(t, s.Store(ctx, "large", make([]byte, secretstorage.MaxValue)))
	if got := load(t, s, "large"); len(got) != secretstorage.MaxValue {
		t.Errorf("%d bytes", len(got))
	}
	mustFail(t, s.Store(ctx, "larger", make([]byte, secretstorage.MaxValue+1)), "more than the 1048576 that a Secret can hold")
	if s.Exists(ctx, "larger") {
		t.Error("a part of it was stored")
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	p := newPlace(t, shared.Get(t))
	s := p.open()
	ctx := within(t)
	mustFail(t, s.Store(ctx, "", nil), "the key is empty")
	mustFail(t, s.Delete(ctx, "/"), "the key is empty")
	mustFail(t, s.Store(ctx, "a\xff", nil), "not UTF-8")
	mustFail(t, s.Store(ctx, strings.Repeat("a/", 600), nil), "longer than 1024 bytes")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for name, err := range map[string]error{"Store": s.Store(ended, "key", nil), "Delete": s.Delete(ended, "key"), "Lock": s.Lock(ended, "key")} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that has ended: %v", name, err)
		}
	}

	// A namespace that is missing, or without rights, is told at once.
	elsewhere := p
	elsewhere.namespace = "none"
	mustFail(t, elsewhere.open().Store(ctx, "key", nil), "forbidden")
	mustFail(t, elsewhere.open().Lock(ctx, "lock"), "forbidden")
	admin := elsewhere
	admin.config = p.api.AdminConfig()
	mustFail(t, admin.open().Store(ctx, "key", nil), `namespaces "none" not found`)
	mustFail(t, admin.open().Lock(ctx, "lock"), `namespaces "none" not found`)
}

// The target is asked for again until it can be had.
func TestOpening(t *testing.T) {
	t.Parallel()
	p := newPlace(t, shared.Get(t))
	fail := errors.New("no kubeconfig yet")
	s := secretstorage.New(secretstorage.Options{Open: func() (secretstorage.Target, error) {
		return secretstorage.Target{Config: p.config, Namespace: p.namespace}, fail
	}})
	ctx := within(t)
	mustFail(t, s.Store(ctx, "key", nil), "no kubeconfig yet")
	mustFail(t, s.Lock(ctx, "lock"), "no kubeconfig yet")
	fail = nil
	must(t, s.Store(ctx, "key", nil))
	if got := s.String(); got != "Secrets in namespace "+p.namespace {
		t.Errorf("%q", got)
	}
}
