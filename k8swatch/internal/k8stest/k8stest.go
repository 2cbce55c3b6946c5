package k8stest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
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
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func ECKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Odd is some odd number of that many bits.
func Odd(t *testing.T, bits int) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits-1)))
	if err != nil {
		t.Fatal(err)
	}
	return n.SetBit(n.SetBit(n, bits-1, 1), 0, 1)
}

// RootOfBits is a certificate of a made-up RSA key of that many bits.
func RootOfBits(t *testing.T, bits int) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: Now.Add(-time.Hour), NotAfter: Now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &rsa.PublicKey{N: Odd(t, bits), E: 65537}, signer())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

var (
	Key = k8swatch.Key{Namespace: "team-a", Name: "prod"}
	// testNow is what testing clocks start from.
	Now = time.Date(2030, 3, 1, 12, 0, 0, 0, time.UTC)
)

const (
	ProxyNamespace = "proxyauth"
	FrontProxyName = "proxyauth-frontproxy-team-a.prod"
	URL            = "https://10.0.0.10:6443"
	Target         = "external:https://10.0.0.10:6443"
)

// Memory is a Store whose reads can be made to fail.
type Memory struct {
	Objects    map[k8swatch.Key]*k8swatch.Object
	Secrets    map[k8swatch.Key]*corev1.Secret
	ConfigMaps map[k8swatch.Key]*corev1.ConfigMap
	Services   map[k8swatch.Key]*corev1.Service
	// Failing holds the error of a read by "<Kind> <namespace>/<name>".
	Failing map[string]error
	Reads   []string
}

func NewMemory() *Memory {
	return &Memory{
		Objects:    map[k8swatch.Key]*k8swatch.Object{},
		Secrets:    map[k8swatch.Key]*corev1.Secret{},
		ConfigMaps: map[k8swatch.Key]*corev1.ConfigMap{},
		Services:   map[k8swatch.Key]*corev1.Service{},
		Failing:    map[string]error{},
	}
}

func (m *Memory) Keys() []k8swatch.Key { return slices.Collect(maps.Keys(m.Objects)) }

func (m *Memory) Object(key k8swatch.Key) *k8swatch.Object { return m.Objects[key] }

func (m *Memory) Secret(namespace, name string) (*corev1.Secret, error) {
	return lookUp(m, m.Secrets, "Secret", namespace, name)
}

func (m *Memory) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return lookUp(m, m.ConfigMaps, "ConfigMap", namespace, name)
}

func (m *Memory) Service(namespace, name string) (*corev1.Service, error) {
	return lookUp(m, m.Services, "Service", namespace, name)
}

func lookUp[T any](m *Memory, from map[k8swatch.Key]*T, kind, namespace, name string) (*T, error) {
	read := kind + " " + namespace + "/" + name
	m.Reads = append(m.Reads, read)
	if err := m.Failing[read]; err != nil {
		return nil, err
	}
	if found := from[k8swatch.Key{Namespace: namespace, Name: name}]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: strings.ToLower(kind) + "s"}, name)
}

// ErrForbidden is what the API answers without the right to read; it names the
// service account of the proxy, which no status may repeat.
func ErrForbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x",
		ErrText(`User "system:serviceaccount:proxyauth:hidden" cannot get resource`))
}

type ErrText string

func (e ErrText) Error() string { return string(e) }

// RevalidatePrefixes stands in for the rules of admission: one rule in each mode,
// two more in FrontProxy.
func RevalidatePrefixes(object *v1.ProxyKubeApi) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if g := object.Spec.ProxyGroup; g != nil && *g == "" {
		errs = append(errs, field.Invalid(spec, "object", "proxy_group must not be empty"))
	}
	u := object.Spec.UpstreamAuth
	if u == nil || u.Mode != v1.ModeFrontProxy {
		return errs
	}
	if ptr.Deref(u.UserPrefix, "") == "" {
		errs = append(errs, field.Required(spec.Child("upstream_auth", "user_prefix"), "user_prefix is required"))
	}
	if ptr.Deref(u.GroupPrefix, "") == "" {
		errs = append(errs, field.Required(spec.Child("upstream_auth", "group_prefix"), "group_prefix is required"))
	}
	if object.Spec.ClientCert != nil {
		errs = append(errs, field.Forbidden(spec.Child("client_cert"), "client_cert cannot be used with FrontProxy"))
	}
	return errs
}

// Object makes a valid object in Passthrough, changed by change.
func Object(change ...func(*v1.ProxyKubeApiSpec)) *v1.ProxyKubeApi {
	o := &v1.ProxyKubeApi{
		ObjectMeta: metav1.ObjectMeta{Namespace: Key.Namespace, Name: Key.Name, UID: "uid-1", Generation: 7},
		Spec: v1.ProxyKubeApiSpec{
			Service:    v1.Service{ExternalService: &v1.ExternalService{URL: URL}},
			AuthConfig: &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{Authenticator()}},
		},
	}
	for _, c := range change {
		c(&o.Spec)
	}
	return o
}

func Authenticator() v1.JWTAuthenticator {
	return v1.JWTAuthenticator{
		Issuer: v1.Issuer{URL: "https://idp.example.test/realm", Audiences: []string{"proxy-a"}, AudienceMatchPolicy: "MatchAny", EgressSelector: "controlplane"},
		ClaimMappings: &v1.ClaimMappings{
			Username: &v1.PrefixedClaimOrExpression{Claim: ptr.To("sub"), Prefix: ptr.To("")},
			Groups:   &v1.PrefixedClaimOrExpression{Claim: ptr.To("groups"), Prefix: ptr.To("")},
		},
	}
}

func InFrontProxy(s *v1.ProxyKubeApiSpec) {
	s.UpstreamAuth = &v1.UpstreamAuth{Mode: v1.ModeFrontProxy, UserPrefix: ptr.To("t:"), GroupPrefix: ptr.To("t:")}
}

func InPreparation(s *v1.ProxyKubeApiSpec) {
	s.UpstreamAuth = &v1.UpstreamAuth{Mode: v1.ModePassthrough, UserPrefix: ptr.To("t:"), GroupPrefix: ptr.To("t:")}
}

// PemPair is a certificate with its key.
type PemPair struct{ Crt, Key []byte }

// CertOptions change what certificate makes.
type CertOptions struct {
	Subject     pkix.Name
	From, Until time.Time
	Usages      []x509.ExtKeyUsage
	Unknown     bool
	Signer      crypto.Signer
}

// signer is one key for all test certificates that do not need their own.
var signer = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})

// Certificate makes a self-signed certificate, good for a day around testNow
// unless changed.
func Certificate(t testing.TB, change ...func(*CertOptions)) PemPair {
	t.Helper()
	o := CertOptions{
		Subject: pkix.Name{CommonName: "front-proxy-a"},
		From:    Now.Add(-time.Hour), Until: Now.Add(23 * time.Hour),
		Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		Signer: signer(),
	}
	for _, c := range change {
		c(&o)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: o.Subject, NotBefore: o.From, NotAfter: o.Until,
		ExtKeyUsage: o.Usages, BasicConstraintsValid: true,
	}
	if o.Unknown {
		template.UnknownExtKeyUsage = append(template.UnknownExtKeyUsage, []int{1, 2, 3, 4})
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, o.Signer.Public(), o.Signer)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(o.Signer)
	if err != nil {
		t.Fatal(err)
	}
	return PemPair{
		Crt: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
}

// FrontProxySecret makes the Secret of testKey's certificate for testTarget.
func FrontProxySecret(pair PemPair, change ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ProxyNamespace, Name: FrontProxyName,
			Labels:      map[string]string{k8swatch.ManagedByLabel: k8swatch.ManagedByValue},
			Annotations: map[string]string{k8swatch.FrontProxyTargetAnnotation: Target},
		},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: pair.Crt, corev1.TLSPrivateKeyKey: pair.Key},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

const FrontProxyRead = "Secret " + ProxyNamespace + "/" + FrontProxyName

// WantReady checks the reason of Ready, its status, and parts of its message.
func WantReady(t testing.TB, c *k8swatch.Cluster, reason string, parts ...string) {
	t.Helper()
	status := k8swatch.StatusFalse
	switch reason {
	case k8swatch.ReasonServing:
		status = k8swatch.StatusTrue
	case k8swatch.ReasonUpstreamModeUnknown:
		status = k8swatch.StatusUnknown
	}
	if c.Ready.Type != k8swatch.ConditionReady || c.Ready.Reason != reason || c.Ready.Status != status {
		t.Fatalf("Ready is %+v, want %s %s", c.Ready, status, reason)
	}
	for _, part := range parts {
		if !strings.Contains(c.Ready.Message, part) {
			t.Errorf("the message of Ready is %q, want it to contain %q", c.Ready.Message, part)
		}
	}
}

func FindNotice(conditions []k8swatch.Condition, kind string) (k8swatch.Condition, bool) {
	i := slices.IndexFunc(conditions, func(c k8swatch.Condition) bool { return c.Type == kind })
	if i < 0 {
		return k8swatch.Condition{}, false
	}
	return conditions[i], true
}

// WantNotice checks that a notice is there, with parts of its message.
func WantNotice(t testing.TB, c *k8swatch.Cluster, kind string, parts ...string) {
	t.Helper()
	n, ok := FindNotice(c.Notices, kind)
	if !ok {
		t.Fatalf("no notice %s in %+v", kind, c.Notices)
	}
	if n.Status != k8swatch.StatusTrue || n.Reason != kind {
		t.Errorf("notice %+v, want True with its type as reason", n)
	}
	for _, part := range parts {
		if !strings.Contains(n.Message, part) {
			t.Errorf("the message of %s is %q, want it to contain %q", kind, n.Message, part)
		}
	}
}

func WantNoNotice(t testing.TB, c *k8swatch.Cluster, kind string) {
	t.Helper()
	if n, ok := FindNotice(c.Notices, kind); ok {
		t.Errorf("unexpected notice %+v", n)
	}
}
