package k8swatch

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

var (
	testKey = Key{Namespace: "team-a", Name: "prod"}
	// testNow is what testing clocks start from.
	testNow = time.Date(2030, 3, 1, 12, 0, 0, 0, time.UTC)
)

const (
	proxyNamespace = "proxyauth"
	frontProxyName = "proxyauth-frontproxy-team-a.prod"
	testURL        = "https://10.0.0.10:6443"
	testTarget     = "external:https://10.0.0.10:6443"
)

// memory is a Store whose reads can be made to fail.
type memory struct {
	objects    map[Key]*Object
	secrets    map[Key]*corev1.Secret
	configMaps map[Key]*corev1.ConfigMap
	services   map[Key]*corev1.Service
	// failing holds the error of a read by "<Kind> <namespace>/<name>".
	failing map[string]error
	reads   []string
}

func newMemory() *memory {
	return &memory{
		objects:    map[Key]*Object{},
		secrets:    map[Key]*corev1.Secret{},
		configMaps: map[Key]*corev1.ConfigMap{},
		services:   map[Key]*corev1.Service{},
		failing:    map[string]error{},
	}
}

func (m *memory) Keys() []Key { return slices.Collect(maps.Keys(m.objects)) }

func (m *memory) Object(key Key) *Object { return m.objects[key] }

func (m *memory) Secret(namespace, name string) (*corev1.Secret, error) {
	return lookUp(m, m.secrets, "Secret", namespace, name)
}

func (m *memory) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return lookUp(m, m.configMaps, "ConfigMap", namespace, name)
}

func (m *memory) Service(namespace, name string) (*corev1.Service, error) {
	return lookUp(m, m.services, "Service", namespace, name)
}

func lookUp[T any](m *memory, from map[Key]*T, kind, namespace, name string) (*T, error) {
	read := kind + " " + namespace + "/" + name
	m.reads = append(m.reads, read)
	if err := m.failing[read]; err != nil {
		return nil, err
	}
	if found := from[Key{Namespace: namespace, Name: name}]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: strings.ToLower(kind) + "s"}, name)
}

// errForbidden is what the API answers without the right to read; it names the
// service account of the proxy, which no status may repeat.
func errForbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x",
		errText(`User "system:serviceaccount:proxyauth:hidden" cannot get resource`))
}

type errText string

func (e errText) Error() string { return string(e) }

// bench is a Compiler on a memory, with a clock that can be set.
type bench struct {
	t       testing.TB
	store   *memory
	options Options
	now     time.Time
	*Compiler
}

func newBench(t testing.TB, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, store: newMemory(), now: testNow}
	b.options = Options{
		Namespace:    proxyNamespace,
		AllowedModes: []v1.UpstreamMode{v1.ModePassthrough, v1.ModeFrontProxy},
		Recheck:      recheckPrefixes,
		Now:          func() time.Time { return b.now },
	}
	for _, c := range change {
		c(&b.options)
	}
	b.Compiler = NewCompiler(b.store, b.options)
	return b
}

// recheckPrefixes stands in for the rules of admission: one rule in each mode,
// two more in FrontProxy.
func recheckPrefixes(object *v1.ProxyKubeApi) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if g := object.Spec.ProxyGroup; g != nil && *g == "" {
		errs = append(errs, field.Invalid(spec, "object", "proxy_group must not be empty"))
	}
	u := object.Spec.UpstreamAuth
	if u == nil || u.Mode != v1.ModeFrontProxy {
		return errs
	}
	if orDefault(u.UserPrefix, "") == "" {
		errs = append(errs, field.Required(spec.Child("upstream_auth", "user_prefix"), "user_prefix is required"))
	}
	if orDefault(u.GroupPrefix, "") == "" {
		errs = append(errs, field.Required(spec.Child("upstream_auth", "group_prefix"), "group_prefix is required"))
	}
	if object.Spec.ClientCert != nil {
		errs = append(errs, field.Forbidden(spec.Child("client_cert"), "client_cert cannot be used with FrontProxy"))
	}
	return errs
}

// put stores an object as testKey.
func (b *bench) put(object *v1.ProxyKubeApi) {
	b.store.objects[testKey] = &Object{ProxyKubeApi: object}
}

func (b *bench) compile() *Cluster {
	b.t.Helper()
	c := b.Compile(testKey)
	if c == nil {
		b.t.Fatal("Compile returned nil")
	}
	return c
}

// object makes a valid object in Passthrough, changed by change.
func object(change ...func(*v1.ProxyKubeApiSpec)) *v1.ProxyKubeApi {
	o := &v1.ProxyKubeApi{
		ObjectMeta: metav1.ObjectMeta{Namespace: testKey.Namespace, Name: testKey.Name, UID: "uid-1", Generation: 7},
		Spec: v1.ProxyKubeApiSpec{
			Service:    v1.Service{ExternalService: &v1.ExternalService{URL: testURL}},
			AuthConfig: &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{authenticator()}},
		},
	}
	for _, c := range change {
		c(&o.Spec)
	}
	return o
}

func authenticator() v1.JWTAuthenticator {
	return v1.JWTAuthenticator{
		Issuer: v1.Issuer{URL: "https://idp.example.test/realm", Audiences: []string{"proxy-a"}, AudienceMatchPolicy: "MatchAny", EgressSelector: "controlplane"},
		ClaimMappings: &v1.ClaimMappings{
			Username: &v1.PrefixedClaimOrExpression{Claim: ptr("sub"), Prefix: ptr("")},
			Groups:   &v1.PrefixedClaimOrExpression{Claim: ptr("groups"), Prefix: ptr("")},
		},
	}
}

func inFrontProxy(s *v1.ProxyKubeApiSpec) {
	s.UpstreamAuth = &v1.UpstreamAuth{Mode: v1.ModeFrontProxy, UserPrefix: ptr("t:"), GroupPrefix: ptr("t:")}
}

func inPreparation(s *v1.ProxyKubeApiSpec) {
	s.UpstreamAuth = &v1.UpstreamAuth{Mode: v1.ModePassthrough, UserPrefix: ptr("t:"), GroupPrefix: ptr("t:")}
}

func ptr[T any](v T) *T { return &v }

// pemPair is a certificate with its key.
type pemPair struct{ crt, key []byte }

// certOptions change what certificate makes.
type certOptions struct {
	subject     pkix.Name
	from, until time.Time
	usages      []x509.ExtKeyUsage
	unknown     bool
	signer      crypto.Signer
}

// signer is one key for all test certificates that do not need their own.
var signer = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})

// certificate makes a self-signed certificate, good for a day around testNow
// unless changed.
func certificate(t testing.TB, change ...func(*certOptions)) pemPair {
	t.Helper()
	o := certOptions{
		subject: pkix.Name{CommonName: "front-proxy-a"},
		from:    testNow.Add(-time.Hour), until: testNow.Add(23 * time.Hour),
		usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		signer: signer(),
	}
	for _, c := range change {
		c(&o)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: o.subject, NotBefore: o.from, NotAfter: o.until,
		ExtKeyUsage: o.usages, BasicConstraintsValid: true,
	}
	if o.unknown {
		template.UnknownExtKeyUsage = append(template.UnknownExtKeyUsage, []int{1, 2, 3, 4})
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, o.signer.Public(), o.signer)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(o.signer)
	if err != nil {
		t.Fatal(err)
	}
	return pemPair{
		crt: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
}

// frontProxySecretOf makes the Secret of testKey's certificate for testTarget.
func frontProxySecretOf(pair pemPair, change ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: proxyNamespace, Name: frontProxyName,
			Labels:      map[string]string{ManagedByLabel: ManagedByValue},
			Annotations: map[string]string{FrontProxyTargetAnnotation: testTarget},
		},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: pair.crt, corev1.TLSPrivateKeyKey: pair.key},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func (b *bench) putSecret(s *corev1.Secret) {
	b.store.secrets[Key{Namespace: s.Namespace, Name: s.Name}] = s
}

func (b *bench) removeSecret(namespace, name string) {
	delete(b.store.secrets, Key{Namespace: namespace, Name: name})
}

func (b *bench) fail(read string, err error) { b.store.failing[read] = err }

func (b *bench) heal(read string) { delete(b.store.failing, read) }

const frontProxyRead = "Secret " + proxyNamespace + "/" + frontProxyName

// wantReady checks the reason of Ready, its status, and parts of its message.
func wantReady(t testing.TB, c *Cluster, reason string, parts ...string) {
	t.Helper()
	status := StatusFalse
	switch reason {
	case ReasonServing:
		status = StatusTrue
	case ReasonUpstreamModeUnknown:
		status = StatusUnknown
	}
	if c.Ready.Type != ConditionReady || c.Ready.Reason != reason || c.Ready.Status != status {
		t.Fatalf("Ready is %+v, want %s %s", c.Ready, status, reason)
	}
	for _, part := range parts {
		if !strings.Contains(c.Ready.Message, part) {
			t.Errorf("the message of Ready is %q, want it to contain %q", c.Ready.Message, part)
		}
	}
}

func findNotice(conditions []Condition, kind string) (Condition, bool) {
	i := slices.IndexFunc(conditions, func(c Condition) bool { return c.Type == kind })
	if i < 0 {
		return Condition{}, false
	}
	return conditions[i], true
}

// wantNotice checks that a notice is there, with parts of its message.
func wantNotice(t testing.TB, c *Cluster, kind string, parts ...string) {
	t.Helper()
	n, ok := findNotice(c.Notices, kind)
	if !ok {
		t.Fatalf("no notice %s in %+v", kind, c.Notices)
	}
	if n.Status != StatusTrue || n.Reason != kind {
		t.Errorf("notice %+v, want True with its type as reason", n)
	}
	for _, part := range parts {
		if !strings.Contains(n.Message, part) {
			t.Errorf("the message of %s is %q, want it to contain %q", kind, n.Message, part)
		}
	}
}

func wantNoNotice(t testing.TB, c *Cluster, kind string) {
	t.Helper()
	if n, ok := findNotice(c.Notices, kind); ok {
		t.Errorf("unexpected notice %+v", n)
	}
}
