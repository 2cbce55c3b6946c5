package compile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/digest"
)

// AudienceEnforce is the value of Options.AudienceValidation that FrontProxy
// demands (AUTH-7).
const AudienceEnforce = "enforce"

// Options are what the proxy admin decides for all clusters.
type Options struct {
	// Namespace is the proxy's own, where front-proxy certificates are.
	Namespace string
	// AllowedModes are the upstream modes that objects may ask for.
	// Passthrough is always among them.
	AllowedModes []v1.UpstreamMode
	// AudienceValidation is enforce, warn or off; empty is enforce.
	AudienceValidation string
	// ReferenceNamespaces are the namespaces, besides its own, that an
	// object's references may point to (API-4).
	ReferenceNamespaces []string
	// Recheck runs the rules of admission on an object, which it must not
	// change (API-3). Paths begin with "spec". Required.
	Recheck func(*v1.ProxyKubeApi) field.ErrorList
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Compiler turns objects, with what they refer to, into Clusters. It holds what
// was last good of each reference, so that a read that fails closes nothing
// (CERT-6, CERT-7). Its methods may be called from several goroutines; the work
// is done by one at a time.
type Compiler struct {
	store   k8swatch.Store
	options Options

	mu   sync.Mutex
	held map[k8swatch.Key]*held
	// bundles are the CAs of all objects.
	bundles bundles
	// readers are the objects whose last compilation read something.
	readers map[k8swatch.Change]map[k8swatch.Key]struct{}
	// cel is made at the first need: it takes a while, and not every
	// installation has an expression.
	cel authenticationcel.Compiler
}

// held is what is kept of an object between two compilations.
type held struct {
	uid        types.UID
	rechecks   rechecks
	auth       heldAuthentication
	authority  heldAuthority
	port       resolvedPort
	service    string
	frontProxy frontProxyState
	clientCert heldClientCert
	config     heldConfig
	cluster    *k8swatch.Cluster
	// reads is what the last compilation read, whether it was there or not.
	reads []k8swatch.Change
}

// rechecks are the verdicts of admission on one spec, by mode.
type rechecks struct {
	spec   string
	byMode map[v1.UpstreamMode]field.ErrorList
}

// NewCompiler returns a Compiler that reads from store. It panics without
// Options.Recheck: objects that are older than the rules would pass unseen.
func NewCompiler(store k8swatch.Store, o Options) *Compiler {
	if o.Recheck == nil {
		panic("k8swatch: Options.Recheck is required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Compiler{store: store, options: o, held: map[k8swatch.Key]*held{}, bundles: bundles{}, readers: map[k8swatch.Change]map[k8swatch.Key]struct{}{}}
}

// Compile returns what the object amounts to now, nil when it is gone. While
// nothing changes it returns the same pointer; RecheckAt says when time alone
// changes something.
func (c *Compiler) Compile(key k8swatch.Key) *k8swatch.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	object := c.store.Object(key)
	if object == nil || object.ProxyKubeApi == nil {
		c.forget(key)
		return nil
	}
	h := c.held[key]
	if h == nil || h.uid != object.ProxyKubeApi.UID {
		// An object of the same name is another object: nothing that was
		// held for its predecessor is its own.
		c.forget(key)
		h = &held{uid: object.ProxyKubeApi.UID}
		c.held[key] = h
	}
	reads := &recorder{Store: c.store, seen: map[k8swatch.Change]struct{}{}}
	b := &builder{
		compiler: c, store: reads, options: c.options, held: h, now: c.options.Now(),
		key: key, object: object, spec: &object.ProxyKubeApi.Spec,
	}
	cluster := b.guarded()
	c.remember(key, h, reads.seen)
	if !sameCluster(h.cluster, cluster) {
		h.cluster = cluster
	}
	return h.cluster
}

// Forget drops what is held of an object.
func (c *Compiler) Forget(key k8swatch.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(key)
}

// builder makes one Cluster.
type builder struct {
	compiler *Compiler
	store    k8swatch.Store
	options  Options
	held     *held
	now      time.Time

	key    k8swatch.Key
	object *k8swatch.Object
	spec   *v1.ProxyKubeApiSpec
	// cel is the object's share of the compiler of expressions.
	cel *objectCEL
}

// guarded is build with a recover: a panic over one object closes that object and
// no other.
func (b *builder) guarded() (c *k8swatch.Cluster) {
	defer func() {
		if recover() == nil {
			return
		}
		// What is held may be half of something.
		*b.held = held{uid: b.held.uid, reads: b.held.reads}
		c = &k8swatch.Cluster{
			Key:        b.key,
			UID:        b.object.ProxyKubeApi.UID,
			Generation: b.object.ProxyKubeApi.Generation,
			Enabled:    ptr.Deref(b.spec.Enabled, true),
			Mode:       b.mode(),
			Auth:       k8swatch.Auth{ValidateAgainst: b.spec.ValidateAgainstOrDefault()},
			Ready:      readiness([]problem{invalid("spec", "the object cannot be processed")}),
		}
	}()
	return b.build()
}

func (b *builder) build() *k8swatch.Cluster {
	mode := b.mode()
	user, group := b.prefixes()
	place, ca, auth := b.place(), b.authority(), b.authentication()
	c := &k8swatch.Cluster{
		Key:           b.key,
		UID:           b.object.ProxyKubeApi.UID,
		Generation:    b.object.ProxyKubeApi.Generation,
		Enabled:       ptr.Deref(b.spec.Enabled, true),
		Exposed:       b.spec.ExposeViaDashboard,
		Mode:          mode,
		Target:        place.target,
		ServerName:    place.serverName,
		CA:            ca.pool,
		CAHash:        ca.hash,
		UserPrefix:    user,
		GroupPrefix:   group,
		ForwardUID:    b.spec.UpstreamAuth != nil && b.spec.UpstreamAuth.ForwardUID,
		Auth:          auth.auth,
		RequiredGroup: b.requiredGroup(),
		Preparing:     mode == v1.ModePassthrough && (user != "" || group != ""),
	}
	own := slices.Concat(place.problems, ca.problems, auth.problems, b.references(), b.unsupported())
	passing := b.clientCert(mode)
	c.ClientCert, c.RecheckAt = passing.certificate, passing.recheckAt
	c.TargetKnown = c.Enabled && len(place.problems) == 0 && ca.hash != unknownCAHash
	var certificate presentable
	if mode == v1.ModeFrontProxy || c.Preparing {
		certificate = b.frontProxy(place.target.Canonical)
		c.FrontProxy, c.RecheckAt = certificate.certificate, earliest(c.RecheckAt, certificate.recheckAt, b.now)
		c.ClientCertSecret, c.ClientCertTarget = k8swatch.FrontProxySecret(b.key), place.target.Canonical
		c.Probe = c.TargetKnown && c.FrontProxy != nil && b.prefixesValid()
	} else {
		// A withdrawal would not be seen now: what is not looked at is not held.
		b.held.frontProxy = frontProxyState{}
	}
	c.Ready = readiness(b.problems(mode, slices.Concat(own, passing.problems), certificate.problems))
	if c.Preparing {
		// FrontProxy refuses client_cert as a whole, whatever is in it.
		c.Missing = conditions(b.problems(v1.ModeFrontProxy, own, certificate.problems))
	}
	c.Notices = b.notices(slices.Concat(certificate.notices, passing.notices), slices.Concat(place.stale, ca.stale, auth.stale, passing.stale))
	return c
}

// problems lists what stops the cluster in a mode, in the order in which Ready
// tells it (section 7 of the reference).
func (b *builder) problems(mode v1.UpstreamMode, own, certificate []problem) []problem {
	problems := b.gates(mode)
	var rules []problem
	if b.object.Invalid != "" {
		rules = []problem{invalid("", b.object.Invalid)}
	} else {
		rules = fromFaults(admission.Faults(b.recheck(mode)))
	}
	for _, reason := range []string{k8swatch.ReasonInvalidSpec, k8swatch.ReasonServiceNotFound, k8swatch.ReasonReferenceNotFound} {
		for _, p := range withoutRepeats(rules, own) {
			if p.reason == reason {
				problems = append(problems, p)
			}
		}
	}
	if mode == v1.ModeFrontProxy {
		problems = append(problems, certificate...)
	}
	return problems
}

// gates are the reasons that come before anything is looked at.
func (b *builder) gates(mode v1.UpstreamMode) []problem {
	var problems []problem
	if !ptr.Deref(b.spec.Enabled, true) {
		problems = append(problems, problem{reason: k8swatch.ReasonDisabled, text: "spec.enabled is false"})
	}
	if !knownMode(mode) {
		return append(problems, problem{reason: k8swatch.ReasonUpstreamModeUnknown, text: fmt.Sprintf(
			"this proxy replica cannot serve upstream mode %s yet", text.OneLine(string(mode), k8swatch.MaxMode))})
	}
	if mode != v1.ModePassthrough && !slices.Contains(b.options.AllowedModes, mode) {
		problems = append(problems, problem{reason: k8swatch.ReasonUpstreamModeNotAllowed, text: fmt.Sprintf(
			"upstream mode %s is not enabled on this proxy installation; allowed_modes opens it", mode)})
	}
	if a := b.options.AudienceValidation; mode == v1.ModeFrontProxy && a != "" && a != AudienceEnforce {
		problems = append(problems, problem{reason: k8swatch.ReasonAudienceValidationRequired, text: fmt.Sprintf(
			"upstream mode FrontProxy requires OIDC audience validation: audience_validation is %s on this proxy installation, not %s", a, AudienceEnforce)})
	}
	return problems
}

func knownMode(mode v1.UpstreamMode) bool {
	return mode == v1.ModePassthrough || mode == v1.ModeFrontProxy
}

// recheck runs the rules of admission as if the object had a mode, once for
// each spec and mode.
func (b *builder) recheck(mode v1.UpstreamMode) field.ErrorList {
	r := &b.held.rechecks
	if spec := specHash(b.spec); r.spec != spec {
		*r = rechecks{spec: spec, byMode: map[v1.UpstreamMode]field.ErrorList{}}
	}
	errs, ok := r.byMode[mode]
	if !ok {
		errs = b.options.Recheck(withMode(b.object.ProxyKubeApi, mode))
		r.byMode[mode] = errs
	}
	return errs
}

// withMode returns the object itself, or a copy as deep as the mode stands.
func withMode(object *v1.ProxyKubeApi, mode v1.UpstreamMode) *v1.ProxyKubeApi {
	if object.Spec.UpstreamAuth == nil || object.Spec.UpstreamAuth.Mode == mode {
		return object
	}
	upstream := *object.Spec.UpstreamAuth
	upstream.Mode = mode
	changed := *object
	changed.Spec.UpstreamAuth = &upstream
	return &changed
}

func specHash(spec *v1.ProxyKubeApiSpec) string {
	data, err := json.Marshal(spec)
	if err != nil {
		panic("k8swatch: encoding a spec: " + err.Error())
	}
	d := digest.New("spec")
	d.Bytes(data)
	return d.Sum()
}

func (b *builder) mode() v1.UpstreamMode {
	if b.spec.UpstreamAuth == nil || b.spec.UpstreamAuth.Mode == "" {
		return v1.ModePassthrough
	}
	return b.spec.UpstreamAuth.Mode
}

func (b *builder) prefixes() (user, group string) {
	u := b.spec.UpstreamAuth
	if u == nil {
		return "", ""
	}
	return ptr.Deref(u.UserPrefix, ""), ptr.Deref(u.GroupPrefix, "")
}

// prefixesValid says whether the prefixes alone would pass in FrontProxy: the
// probe asserts names under them (TRUST-1).
func (b *builder) prefixesValid() bool {
	if b.object.Invalid != "" {
		return false
	}
	user, group := b.prefixes()
	if user == "" || group == "" || strings.HasPrefix(user, k8swatch.ReservedPrefix) || strings.HasPrefix(group, k8swatch.ReservedPrefix) {
		return false
	}
	return !slices.ContainsFunc(b.recheck(v1.ModeFrontProxy), func(err *field.Error) bool {
		return strings.HasPrefix(err.Field, "spec.upstream_auth")
	})
}

// requiredGroup is the group of ACC-1.
func (b *builder) requiredGroup() string {
	if group := ptr.Deref(b.spec.ProxyGroup, ""); group != "" || !b.spec.ExposeViaDashboard {
		return group
	}
	return cmp.Or(ptr.Deref(b.spec.DashboardGroup, ""), "dashboard-"+b.key.Namespace+"-"+b.key.Name)
}

// notices are sorted by type; each type is there once.
func (b *builder) notices(certificate []k8swatch.Condition, stale []string) []k8swatch.Condition {
	notices := slices.Concat(certificate, b.withoutEffect())
	if len(stale) > 0 {
		notices = append(notices, k8swatch.Notice(k8swatch.NoticeReferenceStale, strings.Join(stale, "; ")+"; what was read last stays in force"))
	}
	if b.object.UpdateRefused != "" {
		notices = append(notices, k8swatch.Notice(k8swatch.NoticeUpdateRefused, b.object.UpdateRefused))
	}
	return k8swatch.MergeByType(notices)
}
