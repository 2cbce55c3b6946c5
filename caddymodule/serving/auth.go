package serving

import (
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// Auth says who sends the requests of a cluster.
type Auth struct {
	// Authenticator is nil when bearers are not validated, and while the
	// cluster may not serve.
	authn.Authenticator

	// id is what the authenticator was made of.
	id       string
	warnings *authWarnings
}

// authWarnings are told about one cluster; its versions share them.
type authWarnings struct {
	// audience is about tokens that are not for the cluster, provider about an
	// identity provider that cannot be asked.
	audience, provider occasionalWarning
}

func newAuthWarnings(logger *zap.Logger) *authWarnings {
	return &authWarnings{audience: occasionalWarning{logger: logger}, provider: occasionalWarning{logger: logger}}
}

// WarnAudience logs, now and then, that a token for another audience was
// accepted (AUTH-7).
func (a *Auth) WarnAudience(key k8swatch.Key) {
	if a.warnings != nil {
		a.warnings.audience.warn("a token that is not for the audience of the cluster was accepted: audience_validation is warn", zap.Stringer("cluster", key))
	}
}

// WarnProvider logs, now and then, why a token could not be judged. The status
// tells what the leader met; this replica may meet something else.
func (a *Auth) WarnProvider(key k8swatch.Key, err error) {
	if a.warnings != nil {
		a.warnings.provider.warn("a token could not be judged", zap.Stringer("cluster", key), zap.Error(err))
	}
}

// authenticate takes over the authenticator of the version before while it was
// made of the same, and makes a new one otherwise.
func (rt *Runtime) authenticate(c *Cluster, old Auth) error {
	c.Auth.id = string(c.Spec.UID) + "/" + authScope(c.Spec)
	if old.Authenticator != nil && old.id == c.Auth.id {
		c.Auth.Authenticator = old.Authenticator
		return nil
	}
	if c.Spec.Auth.DisableValidation {
		return nil
	}
	authenticator, err := rt.authenticator(c)
	if err != nil {
		return err
	}
	c.Auth.Authenticator = authenticator
	return nil
}

// requestDrain is how long authenticators outlive the snapshot that they were
// in: requests that found them there may still read keys. Such a request is
// older than the snapshot, its header takes up to 10 s to read on the listener,
// and the provider up to 10 s to answer (AUTH-13).
const requestDrain = 30 * time.Second

func (a *Auth) retire(next Auth) {
	if old := a.Authenticator; old != nil && next.Authenticator != old {
		time.AfterFunc(requestDrain, func() { closeAuthenticator(old) })
	}
}

func closeAuthenticator(a authn.Authenticator) {
	if closer, ok := a.(interface{ Close() }); ok {
		closer.Close()
	}
}

// refresh has the keys of the issuers read again that are due.
func (a *Auth) refresh() {
	if refresher, ok := a.Authenticator.(interface{ Refresh() }); ok {
		refresher.Refresh()
	}
}

// notices is IssuerUnavailable, with all issuers in one (AUTH-13).
func (a *Auth) notices() []k8swatch.Condition {
	faulty, ok := a.Authenticator.(interface{ IssuerFaults() []string })
	if !ok {
		return nil
	}
	faults := faulty.IssuerFaults()
	if len(faults) == 0 {
		return nil
	}
	return []k8swatch.Condition{{
		Type:    k8swatch.NoticeIssuerUnavailable,
		Status:  k8swatch.StatusTrue,
		Reason:  k8swatch.NoticeIssuerUnavailable,
		Message: strings.Join(faults, "; "),
	}}
}

// issuerChanged has the statuses written again of the clusters whose provider
// stopped or began to answer (AUTH-13).
func (rt *Runtime) issuerChanged(issuer string) {
	for key, c := range rt.clusters() {
		if slices.Contains(c.Spec.Auth.Issuers(), issuer) {
			rt.statusChanged(key)
		}
	}
}
