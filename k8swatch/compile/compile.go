package compile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
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
	// ClusterDomain is the DNS domain of the cluster whose Services objects name;
	// empty is DefaultClusterDomain.
	ClusterDomain string
	// DeniedTargets are where no apiserver, issuer or token URL may lead.
	DeniedTargets *egress.Policy
	// RequireValidation refuses objects with disable_validation.
	RequireValidation bool
	// Revalidate runs the rules of admission on an object, which it must not
	// change (API-3). Paths begin with "spec". Required.
	Revalidate func(*v1.ProxyKubeApi) field.ErrorList
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Compiler compiles the objects of one process. It holds only what all objects
// share: the options, and two caches that are keyed by content. It is for one
// goroutine at a time.
type Compiler struct {
	options Options
	bundles bundles
	// cel compiles expressions. It is made when the first object needs it: that
	// takes a while, and not every installation has an expression.
	cel func() authenticationcel.Compiler
}

// New returns a Compiler. It panics without Options.Revalidate: objects that are
// older than the rules of admission would pass unseen.
func New(o Options) *Compiler {
	if o.Revalidate == nil {
		panic("compile: Options.Revalidate is required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Compiler{options: o, bundles: bundles{}, cel: sync.OnceValue(func() authenticationcel.Compiler { return newSharedCEL(maxSharedNodes) })}
}

// Carried is what the compilation of an object hands to the next compilation of
// the same object: the last good value of each reference, so that a read that
// fails closes nothing (CERT-6, CERT-7), and what an unchanged part was compiled
// to. It is a value that is never changed. The zero value is that of an object
// that was never compiled.
type Carried struct {
	uid        types.UID
	rules      ruleResults
	auth       compiledAuth
	ca         goodCA
	port       resolvedPort
	service    string
	frontProxy frontProxyState
	clientCert clientCertState
	config     configState
	cluster    *k8swatch.Cluster
	// reads are what the compilation asked the store for, whether it was there
	// or not.
	reads []k8swatch.Change
}

// ruleResults are what the rules of admission say of one spec, by mode.
type ruleResults struct {
	spec   string
	byMode map[v1.UpstreamMode]field.ErrorList
}

// Compile returns what the object at key amounts to now, nil when it is gone,
// and what the next call for that key must be given. While nothing changes it
// returns the same pointer. RecompileAt says when time alone changes something.
func (c *Compiler) Compile(store k8swatch.Store, key k8swatch.Key, last Carried) (*k8swatch.Cluster, Carried) {
	object := store.Object(key)
	if object == nil || object.ProxyKubeApi == nil {
		return nil, Carried{}
	}
	if last.uid != object.ProxyKubeApi.UID {
		// An object of the same name is another object: it inherits nothing.
		last = Carried{uid: object.ProxyKubeApi.UID}
	}
	reads := &recorder{Store: store, seen: map[k8swatch.Change]struct{}{}}
	b := &builder{
		compiler: c, store: reads, options: c.options, carried: last, now: c.options.Now(),
		key: key, object: object, spec: &object.ProxyKubeApi.Spec,
	}
	cluster := b.buildOrRefuse()
	b.carried.reads = slices.Collect(maps.Keys(reads.seen))
	if b.carried.cluster = last.cluster; !sameCluster(last.cluster, cluster) {
		b.carried.cluster = cluster
	}
	return b.carried.cluster, b.carried
}

// builder makes one Cluster.
type builder struct {
	compiler *Compiler
	store    k8swatch.Store
	options  Options
	// carried begins as what the last compilation left, and ends as what the
	// next one is given.
	carried Carried
	now     time.Time

	key    k8swatch.Key
	object *k8swatch.Object
	spec   *v1.ProxyKubeApiSpec
	// cel is the object's share of the compiler of expressions.
	cel *objectCEL
}

// buildOrRefuse makes the Cluster. A panic over an object closes that object
// only.
func (b *builder) buildOrRefuse() (c *k8swatch.Cluster) {
	defer func() {
		if recover() == nil {
			return
		}
		// What was carried so far may be incomplete.
		b.carried = Carried{uid: b.object.ProxyKubeApi.UID}
		c = &k8swatch.Cluster{
			Key:        b.key,
			UID:        b.object.ProxyKubeApi.UID,
			Generation: b.object.ProxyKubeApi.Generation,
			Enabled:    b.spec.EnabledOrDefault(),
			Mode:       b.spec.ModeOrDefault(),
			Auth:       k8swatch.Auth{ValidateAgainst: b.spec.ValidateAgainstOrDefault()},
			Ready:      readiness([]problem{invalid("spec", "the object cannot be processed")}),
		}
	}()
	return b.build()
}

func (b *builder) build() *k8swatch.Cluster {
	mode := b.spec.ModeOrDefault()
	user, group := b.spec.UserPrefixOrDefault(), b.spec.GroupPrefixOrDefault()
	server, ca, auth, clientCert := b.endpoint(), b.authority(), b.authentication(), b.clientCert(mode)
	c := &k8swatch.Cluster{
		Key:           b.key,
		UID:           b.object.ProxyKubeApi.UID,
		Generation:    b.object.ProxyKubeApi.Generation,
		Enabled:       b.spec.EnabledOrDefault(),
		Mode:          mode,
		Target:        server.target,
		DeniedTargets: b.options.DeniedTargets,
		ServerName:    server.serverName,
		CA:            ca.pool,
		CAHash:        ca.hash,
		ClientCert:    clientCert.certificate,
		UserPrefix:    user,
		GroupPrefix:   group,
		ForwardUID:    b.spec.UpstreamAuth != nil && b.spec.UpstreamAuth.ForwardUID,
		Auth:          auth.auth,
		RequiredGroup: b.requiredGroup(),
		Preparing:     mode == v1.ModePassthrough && (user != "" || group != ""),
		RecompileAt:   clientCert.recompileAt,
	}
	c.TargetKnown = c.Enabled && len(server.problems) == 0 && ca.hash != unknownCAHash
	var frontProxy certificateResult
	if mode == v1.ModeFrontProxy || c.Preparing {
		frontProxy = b.frontProxy(server.target.Canonical)
		c.FrontProxy, c.RecompileAt = frontProxy.certificate, earliest(c.RecompileAt, frontProxy.recompileAt, b.now)
		c.ClientCertSecret, c.ClientCertTarget = k8swatch.FrontProxySecret(b.key), server.target.Canonical
		c.Probe = c.TargetKnown && c.FrontProxy != nil && b.prefixesValid()
	} else {
		// The Secret is not watched for now, so that its withdrawal would be
		// missed: nothing of it is carried over.
		b.carried.frontProxy = frontProxyState{}
	}
	own := slices.Concat(server.problems, ca.problems, auth.problems, b.references(), b.unsupported(), b.validationRequired(), b.sharedDefaultGroup())
	c.Ready = readiness(b.problems(mode, slices.Concat(own, clientCert.problems), frontProxy.problems))
	if c.Preparing {
		// FrontProxy refuses client_cert as a whole, whatever is in it.
		c.Missing = conditions(b.problems(v1.ModeFrontProxy, own, frontProxy.problems))
	}
	c.Notices = b.notices(
		slices.Concat(frontProxy.notices, clientCert.notices),
		slices.Concat(server.stale, ca.stale, auth.stale, clientCert.stale))
	return c
}

// problems lists what stops the cluster in a mode, in the order of the reasons of
// Ready (section 7 of the reference).
func (b *builder) problems(mode v1.UpstreamMode, own, certificate []problem) []problem {
	problems := b.gates(mode)
	var rules []problem
	if b.object.Invalid != "" {
		rules = []problem{invalid("", b.object.Invalid)}
	} else {
		rules = fromFaults(admission.Faults(b.rulesIn(mode)))
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

// gates are the problems that come before all others.
func (b *builder) gates(mode v1.UpstreamMode) []problem {
	var problems []problem
	if !b.spec.EnabledOrDefault() {
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

// rulesIn runs the rules of admission as if the object had that mode, once for
// each spec and mode.
func (b *builder) rulesIn(mode v1.UpstreamMode) field.ErrorList {
	results := &b.carried.rules
	if spec := hashJSON("spec", b.spec); results.spec != spec {
		*results = ruleResults{spec: spec}
	}
	errs, known := results.byMode[mode]
	if !known {
		errs = b.options.Revalidate(withMode(b.object.ProxyKubeApi, mode))
		byMode := map[v1.UpstreamMode]field.ErrorList{mode: errs}
		maps.Copy(byMode, results.byMode)
		results.byMode = byMode
	}
	return errs
}

// withMode returns the object with another mode, without changing it.
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

// hashJSON is a digest of a part of an object. JSON is unambiguous, and every
// field is in it.
func hashJSON(purpose string, part any) string {
	data, err := json.Marshal(part)
	if err != nil {
		// Strings, numbers, booleans and lists of them always marshal.
		panic("compile: encoding " + purpose + ": " + err.Error())
	}
	return digest.Of(purpose, string(data))
}

// prefixesValid says whether the prefixes alone would pass in FrontProxy: the
// probe asserts names under them (TRUST-1).
func (b *builder) prefixesValid() bool {
	if b.object.Invalid != "" {
		return false
	}
	user, group := b.spec.UserPrefixOrDefault(), b.spec.GroupPrefixOrDefault()
	if user == "" || group == "" || strings.HasPrefix(user, k8swatch.ReservedPrefix) || strings.HasPrefix(group, k8swatch.ReservedPrefix) {
		return false
	}
	return !slices.ContainsFunc(b.rulesIn(v1.ModeFrontProxy), func(err *field.Error) bool {
		return strings.HasPrefix(err.Field, "spec.upstream_auth")
	})
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
