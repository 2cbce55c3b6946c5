package compile

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/digest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/keypair"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/reference"
)

const clientCertPath = "spec.client_cert"

// clientCertPair is what messages call the two values of client_cert.
func clientCertPair() keypair.Names {
	return keypair.Names{Certificate: "client_cert.cert", Key: "client_cert.key"}
}

// clientCertState is carried over from one compilation to the next (CERT-7).
type clientCertState struct {
	// source names where certificate and key come from. When the object names
	// another source, the state begins anew.
	source string
	// seen is the pair as it was last read, good or bad.
	seen keypair.Pair
	// good is the last pair that could be used, nil for none.
	good *k8swatch.ClientCertificate
}

// pairHalf says where the certificate of client_cert, or its key, is written.
type pairHalf struct {
	path string
	// ref is nil for a value that is written in the object itself.
	ref    *reference.Reference
	inline string
}

// clientCert reads client_cert, which is presented in Passthrough only.
func (b *builder) clientCert(mode v1.UpstreamMode) certificateResult {
	if b.spec.ClientCert == nil || mode != v1.ModePassthrough {
		// The Secret is not read for now, so that its withdrawal would be missed:
		// nothing of it is carried over.
		b.carried.clientCert = clientCertState{}
		return certificateResult{}
	}
	halves, problems, ok := b.clientCertHalves()
	if !ok {
		b.carried.clientCert = clientCertState{}
		return certificateResult{problems: problems}
	}
	state := &b.carried.clientCert
	if source := pairSource(halves); state.source != source {
		*state = clientCertState{source: source}
	}
	values, fault, refused := b.readHalves(halves)
	if len(refused) > 0 {
		*state = clientCertState{}
		return certificateResult{problems: refused}
	}
	if fault == "" {
		fault = state.accept(values[0], values[1], halves, b.now)
	}
	return state.decide(fault, halves, b.now)
}

// clientCertHalves says where certificate and key are written. It is not ok when
// one of them is missing, or when its reference is refused; references() has the
// problem of a refused reference.
func (b *builder) clientCertHalves() (halves []pairHalf, problems []problem, ok bool) {
	ok = true
	add := func(path string, from v1.CertSource) {
		half := pairHalf{path: path}
		refer := func(field, kind string, ref *v1.KeyReference) {
			half.path = path + "." + field
			r, refused := b.resolve(half.path, kind, ref)
			half.ref, ok = &r, ok && len(refused) == 0
		}
		switch {
		case from.Secret != nil:
			refer("Secret", k8swatch.KindSecret, from.Secret)
		case from.ConfigMap != nil:
			refer("ConfigMap", k8swatch.KindConfigMap, from.ConfigMap)
		case from.Cert != nil:
			half.path, half.inline = path+".Cert", *from.Cert
		default:
			problems, ok = append(problems, invalid(path, "must be Secret, ConfigMap or Cert")), false
		}
		halves = append(halves, half)
	}
	add(clientCertPath+".cert", b.spec.ClientCert.Cert)
	add(clientCertPath+".key", b.spec.ClientCert.Key)
	return halves, problems, ok
}

func pairSource(halves []pairHalf) string {
	var sources []any
	for _, h := range halves {
		sources = append(sources, sha256.Sum256([]byte(h.inline)), ptr.Deref(h.ref, reference.Reference{}))
	}
	return digest.Of("client_cert source", sources...)
}

// readHalves returns both values, or the fault of a read that may succeed later,
// or problems that only the author can solve. Such problems also withdraw the
// last good pair.
func (b *builder) readHalves(halves []pairHalf) (values [][]byte, fault string, refused []problem) {
	var faults []string
	for _, h := range halves {
		if h.ref == nil {
			value, err := base64.StdEncoding.DecodeString(strings.TrimSpace(h.inline))
			if err != nil {
				refused = append(refused, invalid(h.path, "must be PEM in base64"))
			}
			values = append(values, value)
			continue
		}
		value, err := b.read(*h.ref)
		var protected errProtected
		switch {
		case errors.As(err, &protected):
			refused = append(refused, invalid(h.path+".name", reference.ProtectedText))
		case err != nil:
			faults = append(faults, err.Error())
		}
		values = append(values, value)
	}
	return values, strings.Join(slices.Compact(faults), "; "), refused
}

// accept makes a pair that was read the last good one, or says why it cannot be
// used.
func (s *clientCertState) accept(crt, key []byte, halves []pairHalf, now time.Time) (fault string) {
	if s.seen.Content != keypair.Content(crt, key) {
		s.seen = keypair.Parse(crt, key, clientCertPair())
	}
	if s.seen.Fault != nil {
		fault = s.seen.Fault.Error()
	} else {
		fault = keypair.ValidityFault(s.seen.Leaf, now)
	}
	switch {
	case fault == "":
		s.good = s.seen.Certificate
		return ""
	case referred(halves) == "":
		return fault
	}
	return "get " + referred(halves) + ": " + fault
}

// referred names the Secrets and ConfigMaps that the pair is read from.
func referred(halves []pairHalf) string {
	var names []string
	for _, h := range halves {
		if h.ref != nil {
			names = append(names, h.ref.String())
		}
	}
	return strings.Join(slices.Compact(names), ", ")
}

// decide presents the last good pair until it expires, and tells the fault of the
// newest one.
func (s *clientCertState) decide(fault string, halves []pairHalf, now time.Time) certificateResult {
	if s.good != nil && now.After(s.good.Leaf.NotAfter) {
		s.good = nil
	}
	p := certificateResult{certificate: s.good, recompileAt: nextLook(s.good, s.seen, now)}
	switch {
	case fault == "":
	case s.good != nil:
		p.stale = []string{fault}
	case referred(halves) == "":
		p.problems = []problem{invalid(clientCertPath, fault)}
	default:
		p.problems = []problem{{reason: k8swatch.ReasonReferenceNotFound, path: clientCertPath, text: fault}}
	}
	if s.good != nil && !now.Before(expiringFrom(s.good.Leaf)) {
		p.notices = []k8swatch.Condition{k8swatch.Notice(k8swatch.NoticeClientCertExpiring, "the certificate of client_cert expires at "+keypair.Timestamp(s.good.Leaf.NotAfter))}
	}
	return p
}
