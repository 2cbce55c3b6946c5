package compile

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/keypair"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/reference"
)

// certificateResult is what a certificate amounts to now: the one that the proxy
// presents in FrontProxy, or client_cert.
type certificateResult struct {
	// certificate is nil unless it may be presented to the target now.
	certificate *k8swatch.ClientCertificate
	problems    []problem
	notices     []k8swatch.Condition
	// stale says which reads failed while an earlier value stays in force.
	stale []string
	// recompileAt is when time alone changes this result, zero for never.
	recompileAt time.Time
}

// frontProxyState is carried over from one compilation to the next. It depends
// only on what the administrator of the proxy did with the Secret. What the
// author wrote into the object decides whether the pair may be presented.
type frontProxyState struct {
	// seen is the Secret as it was last read, nil before the first read.
	seen *frontProxySecret
	// pair is the last pair that could be used. It is nil when there was none,
	// and when the administrator withdrew it (CERT-5).
	pair *acceptedPair
}

// frontProxySecret is the result of one read of the Secret.
type frontProxySecret struct {
	absent bool
	// misfit says what is wrong with the type or the label.
	misfit      string
	annotations frontProxyAnnotations
	pair        keypair.Pair
}

type frontProxyAnnotations struct {
	// uid is that of the Secret. A Secret that was deleted withdraws its pair,
	// also when another Secret of the same name exists by now (CERT-5).
	uid        types.UID
	target     string
	prefix     string
	havePrefix bool
}

// acceptedPair is a pair with the annotations that the Secret had when the pair
// was accepted.
type acceptedPair struct {
	certificate *k8swatch.ClientCertificate
	annotations frontProxyAnnotations
}

// frontProxy decides what may be presented to target, which is empty when it is
// not known.
func (b *builder) frontProxy(target string) certificateResult {
	name := k8swatch.FrontProxySecret(b.key)
	if len(name) > k8swatch.MaxSecretName {
		return certificateResult{problems: []problem{{reason: k8swatch.ReasonClientCertNameTooLong, text: fmt.Sprintf(
			"the Secret of the certificate, %s<namespace>.<name>, would have a name of %d characters, over the %d allowed; give the ProxyKubeApi a shorter name",
			k8swatch.FrontProxySecretPrefix, len(name), k8swatch.MaxSecretName)}}}
	}
	state := &b.carried.frontProxy
	secret, err := b.store.Secret(b.options.Namespace, name)
	unread := ""
	switch {
	case apierrors.IsNotFound(err):
		state.see(&frontProxySecret{absent: true})
	case err != nil:
		unread = reference.GetFailed(k8swatch.KindSecret, b.options.Namespace, name, reference.Fault(err))
	default:
		state.see(examine(secret, state.seen))
	}
	if state.seen == nil {
		return certificateResult{problems: []problem{{reason: k8swatch.ReasonClientCertMissing, text: unread}}}
	}
	p := state.decide("Secret "+b.options.Namespace+"/"+name, b.now)
	p.problems = append(p.problems, b.mismatches(name, target)...)
	if value, reserved := state.seen.reserved(); reserved {
		p.problems = append(p.problems, problem{reason: k8swatch.ReasonClientCertSubjectReserved, text: fmt.Sprintf(
			"the subject of the certificate in Secret %s/%s holds %s: no common name and no organization may start with %s",
			b.options.Namespace, name, text.Quote(value, k8swatch.MaxQuoted), k8swatch.ReservedPrefix)})
	}
	if unread != "" {
		p.notices = append(p.notices, k8swatch.Notice(k8swatch.NoticeClientCertRenewalFailed, unread+"; what was read last stays in force"))
	}
	if state.pair != nil && len(p.problems) == 0 && target != "" {
		p.certificate = state.pair.certificate
		if leaf := p.certificate.Leaf; !b.now.Before(expiringFrom(leaf)) {
			p.notices = append(p.notices, k8swatch.Notice(k8swatch.NoticeClientCertExpiring, fmt.Sprintf(
				"the certificate in Secret %s/%s expires at %s", b.options.Namespace, name, keypair.Timestamp(leaf.NotAfter))))
		}
	}
	return p
}

// examine reads what a Secret says, and parses a pair once.
func examine(secret *corev1.Secret, last *frontProxySecret) *frontProxySecret {
	seen := &frontProxySecret{}
	switch {
	case secret.Type != corev1.SecretTypeTLS:
		seen.misfit = "is not of type " + string(corev1.SecretTypeTLS)
	case secret.Labels[k8swatch.ManagedByLabel] != k8swatch.ManagedByValue:
		seen.misfit = "lacks the label " + k8swatch.ManagedByLabel + ": " + k8swatch.ManagedByValue
	}
	seen.annotations.uid = secret.UID
	seen.annotations.target = secret.Annotations[k8swatch.FrontProxyTargetAnnotation]
	seen.annotations.prefix, seen.annotations.havePrefix = secret.Annotations[k8swatch.FrontProxyPrefixAnnotation]
	crt, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if last != nil && last.pair.Content == keypair.Content(crt, key) {
		seen.pair = last.pair
	} else {
		seen.pair = keypair.Parse(crt, key, keypair.SecretNames())
	}
	return seen
}

func (s *frontProxySecret) reserved() (string, bool) {
	if s.pair.Leaf == nil {
		return "", false
	}
	return keypair.ReservedSubject(s.pair.Leaf)
}

// see notes the result of a read. Everything the administrator can do to withdraw
// the certificate drops the pair, so that the pair does not come back when the
// Secret is repaired with contents that cannot be used (CERT-5).
func (s *frontProxyState) see(seen *frontProxySecret) {
	s.seen = seen
	_, reserved := seen.reserved()
	if seen.absent || seen.misfit != "" || reserved || s.pair != nil && s.pair.annotations != seen.annotations {
		s.pair = nil
	}
}

// decide says whether a pair is there, whatever it may be presented to.
func (s *frontProxyState) decide(label string, now time.Time) certificateResult {
	missing := func(text string) []problem {
		return []problem{{reason: k8swatch.ReasonClientCertMissing, text: label + " " + text}}
	}
	switch {
	case s.seen.absent:
		return certificateResult{problems: missing("does not exist")}
	case s.seen.misfit != "":
		return certificateResult{problems: missing(s.seen.misfit)}
	}
	fault := s.accept(now)
	if s.pair != nil && now.After(s.pair.certificate.Leaf.NotAfter) {
		s.pair = nil
	}
	p := certificateResult{recompileAt: nextLook(s.good(), s.seen.pair, now)}
	switch {
	case fault == "":
	case s.pair == nil:
		p.problems = missing("cannot be used: " + fault)
	default:
		p.notices = append(p.notices, k8swatch.Notice(k8swatch.NoticeClientCertRenewalFailed, fmt.Sprintf(
			"%s cannot be used: %s; the previous certificate serves until %s", label, fault, keypair.Timestamp(s.pair.certificate.Leaf.NotAfter))))
	}
	return p
}

// good is the certificate of the last good pair, or nil.
func (s *frontProxyState) good() *k8swatch.ClientCertificate {
	if s.pair == nil {
		return nil
	}
	return s.pair.certificate
}

// accept makes the pair of the Secret the last good one, or says why it cannot be
// used.
func (s *frontProxyState) accept(now time.Time) (fault string) {
	pair := s.seen.pair
	if pair.Fault != nil {
		return pair.Fault.Error()
	}
	if fault := keypair.ValidityFault(pair.Leaf, now); fault != "" {
		return fault
	}
	if _, reserved := s.seen.reserved(); !reserved {
		s.pair = &acceptedPair{certificate: pair.Certificate, annotations: s.seen.annotations}
	}
	return ""
}

// mismatches compares what the admin wrote on the Secret with what the object
// asks for. The author of the object does not learn the values on the Secret.
func (b *builder) mismatches(name, target string) []problem {
	seen := b.carried.frontProxy.seen
	if seen.absent || target == "" {
		return nil
	}
	var problems []problem
	mismatch := func(text string) {
		problems = append(problems, problem{reason: k8swatch.ReasonClientCertTargetMismatch, text: text})
	}
	if seen.annotations.target != target {
		mismatch(fmt.Sprintf("annotation %s of Secret %s/%s must be %s", k8swatch.FrontProxyTargetAnnotation, b.options.Namespace, name, text.Quote(target, k8swatch.MaxQuoted)))
	}
	user, group := b.spec.UserPrefixOrDefault(), b.spec.GroupPrefixOrDefault()
	if p := seen.annotations.prefix; seen.annotations.havePrefix && (p != user || p != group) {
		mismatch(fmt.Sprintf("user_prefix and group_prefix must both be what annotation %s of Secret %s/%s says", k8swatch.FrontProxyPrefixAnnotation, b.options.Namespace, name))
	}
	return problems
}
