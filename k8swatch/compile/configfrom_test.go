package compile

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

const configRead = "Secret team-a/idp"

// withConfigFrom makes an object that takes its provider from the Secret
// team-a/idp.
func withConfigFrom(change ...func(*v1.OidcProvider)) *v1.ProxyKubeApi {
	return withProvider(append([]func(*v1.OidcProvider){func(p *v1.OidcProvider) {
		p.IssuerURL, p.ClientID = "", ""
		p.ConfigFrom = &v1.ConfigReference{Secret: &v1.SecretReference{Name: "idp"}}
	}}, change...)...)
}

// goodConfig is enough of a Secret.
func goodConfig() map[string]string {
	return map[string]string{"issuer_url": "https://secret.example.test", "client_id": "of-the-secret", "client_secret": "hunter2"}
}

func (b *bench) putConfig(data map[string]string, change ...func(*corev1.Secret)) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "idp"}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	for _, c := range change {
		c(s)
	}
	b.putSecret(s)
}

// badConfig is goodConfig with other values; "-" leaves a key out.
func badConfig(values map[string]string) map[string]string {
	data := goodConfig()
	for k, v := range values {
		if data[k] = v; v == "-" {
			delete(data, k)
		}
	}
	return data
}

// wantSecretsHidden checks that nothing tells a value of the Secret.
func wantSecretsHidden(t *testing.T, c *k8swatch.Cluster) {
	t.Helper()
	for _, condition := range append(c.Notices, c.Ready) {
		for _, hidden := range []string{"hunter2", "secret.example.test", "of-the-secret"} {
			if strings.Contains(condition.Message, hidden) {
				t.Errorf("a message repeats a value: %+v", condition)
			}
		}
	}
}

func TestConfigFromWinsOverFields(t *testing.T) { // API-7
	ca, other := string(k8stest.Certificate(t).Crt), string(k8stest.Certificate(t).Crt)
	fields := func(p *v1.OidcProvider) {
		p.IssuerURL, p.ClientID, p.ClientSecret, p.Audience = "https://field.example.test", "field", ptr.To("field-secret"), "field-aud"
		p.ExtraScope, p.CertificateAuthority = "field-scope", &ca
	}
	ofFields := k8swatch.OIDCProvider{
		IssuerURL: "https://field.example.test", ClientID: "field", ClientSecret: "field-secret", Audience: "field-aud",
		ExtraScope: "field-scope", CertificateAuthority: ca,
	}
	with := func(change func(*k8swatch.OIDCProvider)) k8swatch.OIDCProvider {
		p := ofFields
		change(&p)
		return p
	}
	tests := map[string]struct {
		data   map[string]string
		fields func(*v1.OidcProvider)
		want   k8swatch.OIDCProvider
	}{
		"nothing in it": {map[string]string{}, fields, ofFields},
		"all of it": {map[string]string{
			"issuer_url": "https://s.example.test", "client_id": "s", "client_secret": "ss", "audience": "sa", "extra_scope": "groups  offline_access", "certificate_authority": other,
		}, fields, k8swatch.OIDCProvider{
			IssuerURL: "https://s.example.test", ClientID: "s", ClientSecret: "ss", Audience: "sa", ExtraScope: "groups  offline_access",
			CertificateAuthority: strings.TrimSuffix(other, "\n"),
		}},
		"no fields":                 {goodConfig(), func(*v1.OidcProvider) {}, k8swatch.OIDCProvider{IssuerURL: "https://secret.example.test", ClientID: "of-the-secret", ClientSecret: "hunter2", Audience: "of-the-secret"}},
		"issuer_url alone":          {map[string]string{"issuer_url": "https://s.example.test/"}, fields, with(func(p *k8swatch.OIDCProvider) { p.IssuerURL = "https://s.example.test/" })},
		"client_id alone":           {map[string]string{"client_id": "s"}, fields, with(func(p *k8swatch.OIDCProvider) { p.ClientID = "s" })},
		"client_secret alone":       {map[string]string{"client_secret": "s"}, fields, with(func(p *k8swatch.OIDCProvider) { p.ClientSecret = "s" })},
		"an empty client_secret":    {map[string]string{"client_secret": ""}, fields, with(func(p *k8swatch.OIDCProvider) { p.ClientSecret = "" })},
		"an empty audience":         {map[string]string{"audience": ""}, fields, with(func(p *k8swatch.OIDCProvider) { p.Audience = "field" })},
		"an empty extra_scope":      {map[string]string{"extra_scope": ""}, fields, with(func(p *k8swatch.OIDCProvider) { p.ExtraScope = "" })},
		"a line break at the end":   {map[string]string{"client_id": "s\n", "client_secret": "t\r\n"}, fields, with(func(p *k8swatch.OIDCProvider) { p.ClientID, p.ClientSecret = "s", "t" })},
		"a field that is not valid": {goodConfig(), func(p *v1.OidcProvider) { p.IssuerURL = "placeholder" }, k8swatch.OIDCProvider{IssuerURL: "https://secret.example.test", ClientID: "of-the-secret", ClientSecret: "hunter2", Audience: "of-the-secret"}},
		"keys of other fields": {map[string]string{
			"accept_authorized_party": "true", "claims_source": "Token", "enabled": "false", "claim_mappings": "{}", "ISSUER_URL": "https://x", "token_url": "https://x",
		}, fields, ofFields},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.putConfig(tt.data)
			p := *b.provider(withConfigFrom(tt.fields))
			if claims := claimsOf(&p); claims.Issuer.URL != p.IssuerURL || claims.Issuer.Audiences[0] != p.Audience {
				t.Errorf("issuer of the claims %+v", claims.Issuer)
			}
			p.Claims = k8swatch.JWT{}
			if diff := cmp.Diff(tt.want, p); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// CERT-7: what cannot be used is ReferenceNotFound where nothing better was ever
// read, and else changes nothing but a notice.
func TestConfigFromThatCannotBeUsed(t *testing.T) {
	const get = "get Secret team-a/idp: "
	tests := map[string]struct {
		data map[string]string // nil: no Secret
		want string
	}{
		"no Secret":             {nil, get + "it does not exist"},
		"issuer http":           {map[string]string{"issuer_url": "http://secret.example.test"}, get + `key "issuer_url" must be an https:// URL`},
		"issuer no URL":         {map[string]string{"issuer_url": "hunter2"}, get + `key "issuer_url" must be an https:// URL`},
		"issuer no host":        {map[string]string{"issuer_url": "https://"}, get + `key "issuer_url" needs a host`},
		"issuer with password":  {map[string]string{"issuer_url": "https://u:hunter2@secret.example.test"}, get + `key "issuer_url" must not contain a user or password`},
		"issuer with query":     {map[string]string{"issuer_url": "https://secret.example.test?hunter2"}, get + `key "issuer_url" must not contain a query`},
		"issuer with fragment":  {map[string]string{"issuer_url": "https://secret.example.test#"}, get + `key "issuer_url" must not contain a fragment`},
		"issuer empty":          {map[string]string{"issuer_url": ""}, get + `key "issuer_url" must not be empty`},
		"issuer nowhere":        {map[string]string{"issuer_url": "-"}, get + `key "issuer_url" is missing, and the field is empty`},
		"issuer too long":       {map[string]string{"issuer_url": "https://secret.example.test/" + strings.Repeat("x", maxURL)}, get + `key "issuer_url" must have at most 2048 characters`},
		"issuer, two lines":     {map[string]string{"issuer_url": "https://secret.example.test/\n\n"}, get + `key "issuer_url" has a control character`},
		"client_id empty":       {map[string]string{"client_id": "\n"}, get + `key "client_id" must not be empty`},
		"client_id nowhere":     {map[string]string{"client_id": "-"}, get + `key "client_id" is missing, and the field is empty`},
		"client_id too long":    {map[string]string{"client_id": strings.Repeat("é", maxName+1)}, get + `key "client_id" must have at most 253 characters`},
		"client_id no UTF-8":    {map[string]string{"client_id": "a\xff"}, get + `key "client_id" must be Unicode text`},
		"client_secret control": {map[string]string{"client_secret": "hunter2\r\nX: y"}, get + `key "client_secret" has a control character`},
		"client_secret lone CR": {map[string]string{"client_secret": "hunter2\r"}, get + `key "client_secret" has a control character`},
		"client_secret C1":      {map[string]string{"client_secret": "hunter2\u0085"}, get + `key "client_secret" has a control character`},
		"client_secret length":  {map[string]string{"client_secret": strings.Repeat("x", maxSecret+1)}, get + `key "client_secret" must have at most 4096 characters`},
		"audience control":      {map[string]string{"audience": "a\x00"}, get + `key "audience" has a control character`},
		"audience too long":     {map[string]string{"audience": strings.Repeat("x", maxName+1)}, get + `key "audience" must have at most 253 characters`},
		"extra_scope":           {map[string]string{"extra_scope": `openid "hunter2"`}, get + `key "extra_scope" must be a scope`},
		"extra_scope too long":  {map[string]string{"extra_scope": strings.Repeat("x ", maxScopes)}, get + `key "extra_scope" must have at most 1024 characters`},
		"CA empty (API-6)":      {map[string]string{"certificate_authority": ""}, get + `key "certificate_authority" is empty; leave it out for the system roots`},
		"CA no PEM":             {map[string]string{"certificate_authority": "hunter2"}, get + `key "certificate_authority" holds no PEM certificate`},
		"CA too long":           {map[string]string{"certificate_authority": string(k8stest.Certificate(t).Crt) + strings.Repeat("x", maxCA)}, get + `key "certificate_authority" must have at most 131072 characters`},
		"two keys":              {map[string]string{"issuer_url": "-", "client_id": ""}, get + `key "client_id" must not be empty`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			spoil := func() {
				if b.removeSecret("team-a", "idp"); tt.data != nil {
					b.putConfig(badConfig(tt.data))
				}
			}
			spoil()
			b.put(withConfigFrom())
			c := b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonReferenceNotFound, "spec.auth_config.oidc_provider.config_from.Secret: "+tt.want)
			wantSecretsHidden(t, c)
			if c.Auth.OIDC != nil {
				t.Errorf("OIDC %v", c.Auth.OIDC)
			}

			b.putConfig(goodConfig())
			good := b.compile()
			k8stest.WantReady(t, good, k8swatch.ReasonServing)
			k8stest.WantNoNotice(t, good, k8swatch.NoticeReferenceStale)
			spoil()
			c = b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonServing)
			k8stest.WantNotice(t, c, k8swatch.NoticeReferenceStale, get, strings.TrimPrefix(tt.want, get), "what was read last stays in force")
			wantSecretsHidden(t, c)
			if c.Auth.OIDC != good.Auth.OIDC || c.Auth.Hash != good.Auth.Hash {
				t.Error("not what was read last")
			}
			b.putConfig(goodConfig())
			k8stest.WantNoNotice(t, b.compile(), k8swatch.NoticeReferenceStale)
		})
	}
}

// The name of a service account of the proxy is in no status.
func TestConfigFromWithoutTheRight(t *testing.T) { // CERT-7
	b := newBench(t)
	b.put(withConfigFrom())
	b.putConfig(goodConfig())
	b.fail(configRead, k8stest.ErrForbidden())
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonReferenceNotFound, "get Secret team-a/idp: forbidden")
	b.heal(configRead)
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	b.fail(configRead, k8stest.ErrForbidden())
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	k8stest.WantNotice(t, c, k8swatch.NoticeReferenceStale, "get Secret team-a/idp: forbidden")
	if n, _ := k8stest.FindNotice(c.Notices, k8swatch.NoticeReferenceStale); strings.Contains(n.Message, "serviceaccount") {
		t.Errorf("notice %q", n.Message)
	}
}

// What the author must change is told of the field, unless a Secret that lost a
// key made it count.
func TestConfigFromWithFieldsThatCannotBeUsed(t *testing.T) {
	b := newBench(t)
	o := withConfigFrom(func(p *v1.OidcProvider) { p.IssuerURL = "http://hunter2" })
	b.put(o)
	without := badConfig(map[string]string{"issuer_url": "-"})
	b.putConfig(without)
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, "spec.auth_config.oidc_provider.issuer_url: must be an https:// URL")
	wantSecretsHidden(t, c)
	b.putConfig(goodConfig())
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	b.putConfig(without)
	c = b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	k8stest.WantNotice(t, c, k8swatch.NoticeReferenceStale, "get Secret team-a/idp: spec.auth_config.oidc_provider.issuer_url: must be an https:// URL")

	// What is held is not enough when the object itself takes away the rest.
	b.putConfig(map[string]string{"client_id": "of-the-secret"})
	b.spec().AuthConfig.OidcProvider.IssuerURL = "https://field.example.test"
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	b.spec().AuthConfig.OidcProvider.IssuerURL = ""
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonReferenceNotFound, `key "issuer_url" is missing, and the field is empty`)
}

// What was held belongs to the Secret it was read from and to nothing that the
// proxy keeps for itself (API-4, API-5).
func TestConfigFromInheritsNothing(t *testing.T) {
	labelled := func(s *corev1.Secret) { s.Labels = map[string]string{k8swatch.ManagedByLabel: k8swatch.ManagedByValue} }
	// away changes the object for one compilation and makes the Secret unreadable.
	away := func(change func(*v1.ProxyKubeApiSpec)) func(*bench) {
		return func(b *bench) {
			before := b.spec().DeepCopy()
			change(b.spec())
			b.compile()
			b.store.Objects[k8stest.Key].ProxyKubeApi.Spec = *before
			b.fail(configRead, k8stest.ErrForbidden())
		}
	}
	tests := map[string]struct {
		change func(*bench)
		reason string
	}{
		"another Secret":    {func(b *bench) { b.spec().AuthConfig.OidcProvider.ConfigFrom.Secret.Name = "other" }, k8swatch.ReasonReferenceNotFound},
		"another namespace": {func(b *bench) { b.spec().AuthConfig.OidcProvider.ConfigFrom.Secret.Namespace = ptr.To("team-b") }, k8swatch.ReasonInvalidSpec},
		"a Secret of the proxy by name": {func(b *bench) {
			b.spec().AuthConfig.OidcProvider.ConfigFrom.Secret.Name = "proxyauth-agent-x"
		}, k8swatch.ReasonInvalidSpec},
		"a Secret of the proxy by label": {func(b *bench) { b.putConfig(goodConfig(), labelled) }, k8swatch.ReasonInvalidSpec},
		"unreadable after the label": {func(b *bench) {
			b.putConfig(goodConfig(), labelled)
			b.compile()
			b.fail(configRead, k8stest.ErrForbidden())
		}, k8swatch.ReasonReferenceNotFound},
		"no config_from and back":    {away(func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.OidcProvider.ConfigFrom = nil }), k8swatch.ReasonReferenceNotFound},
		"no Secret and back":         {away(func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.OidcProvider.ConfigFrom.Secret = nil }), k8swatch.ReasonReferenceNotFound},
		"another validator and back": {away(func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.ValidateAgainst = v1.ValidateKubernetes }), k8swatch.ReasonReferenceNotFound},
		"no validation and back":     {away(func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.DisableValidation = true }), k8swatch.ReasonReferenceNotFound},
		"another namespace and back": {away(func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.OidcProvider.ConfigFrom.Secret.Namespace = ptr.To("x") }), k8swatch.ReasonReferenceNotFound},
		"not enabled and back":       {away(func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.OidcProvider.Enabled = false }), k8swatch.ReasonReferenceNotFound},
		"another object of that name": {func(b *bench) {
			b.store.Objects[k8stest.Key].ProxyKubeApi.UID = "uid-2"
			b.fail(configRead, k8stest.ErrForbidden())
		}, k8swatch.ReasonReferenceNotFound},
		"nothing but a failing Secret": {func(b *bench) { b.fail(configRead, k8stest.ErrForbidden()) }, k8swatch.ReasonServing},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.putConfig(goodConfig())
			b.provider(withConfigFrom())
			tt.change(b)
			c := b.compile()
			k8stest.WantReady(t, c, tt.reason)
			if (c.Auth.OIDC != nil) != (tt.reason == k8swatch.ReasonServing) {
				t.Errorf("OIDC %v", c.Auth.OIDC)
			}
		})
	}
}

// A Secret that nothing is made of is not read.
func TestConfigFromIsReadInUse(t *testing.T) {
	for name, change := range map[string]func(*v1.AuthConfig){
		"another validator": func(a *v1.AuthConfig) { a.ValidateAgainst = v1.ValidateKubernetes },
		"no validation":     func(a *v1.AuthConfig) { a.DisableValidation = true },
		"not enabled":       func(a *v1.AuthConfig) { a.OidcProvider.Enabled = false },
		"no config_from":    func(a *v1.AuthConfig) { a.OidcProvider.ConfigFrom = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.putConfig(goodConfig())
			o := withConfigFrom()
			change(o.Spec.AuthConfig)
			b.put(o)
			b.compile()
			if len(b.store.Reads) != 0 {
				t.Errorf("read %v", b.store.Reads)
			}
		})
	}
}

// AUTH-12: each value of the Secret is in the hash; another cluster that does
// not read it stays the very same value.
func TestConfigFromChangesTheHash(t *testing.T) {
	b := newBench(t)
	b.putConfig(goodConfig())
	b.put(withConfigFrom())
	neighbour := k8swatch.Key{Namespace: "team-a", Name: "neighbour"}
	o := withProvider()
	o.Name = neighbour.Name
	b.store.Objects[neighbour] = &k8swatch.Object{ProxyKubeApi: o}
	untouched := b.at(neighbour)

	seen := map[string]string{b.compile().Auth.Hash: "the first"}
	changes := map[string]string{
		"issuer_url": "https://other.example.test", "client_id": "other", "client_secret": "other", "audience": "other",
		"extra_scope": "other", "certificate_authority": string(k8stest.Certificate(t).Crt),
	}
	for key, value := range changes {
		data := goodConfig()
		maps.Copy(data, map[string]string{key: value})
		b.putConfig(data)
		secret := k8swatch.Change{Kind: k8swatch.KindSecret, Namespace: "team-a", Name: "idp"}
		if diff := cmp.Diff([]k8swatch.Key{k8stest.Key}, b.affected(secret)); diff != "" {
			t.Errorf("affected by the Secret: %s", diff)
		}
		before := b.compile()
		k8stest.WantReady(t, before, k8swatch.ReasonServing)
		if other := seen[before.Auth.Hash]; other != "" {
			t.Errorf("another %s gives the hash of %s", key, other)
		}
		seen[before.Auth.Hash] = key
		b.putConfig(data, func(s *corev1.Secret) { s.ResourceVersion, s.Data["unrelated"] = "9", []byte("x") })
		if b.compile() != before {
			t.Errorf("%s: a new value though nothing that is read changed", key)
		}
	}
	if b.at(neighbour) != untouched {
		t.Error("the neighbour is another value")
	}
}
