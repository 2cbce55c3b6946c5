package claims

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/safecel"
)

// Why claims make no identity. All but ErrBusy and ErrSlow are about the token.
var (
	ErrClaim            = errors.New("a claim is missing or has the wrong type")
	ErrEmailNotVerified = errors.New("the e-mail address is not verified")
	ErrRule             = errors.New("a validation rule is not met")
	ErrTooLarge         = errors.New("the token is too large for the expressions")
	// ErrBusy says that the token waited for its turn until its time was over.
	ErrBusy = errors.New("too many tokens wait to be validated")
	// ErrSlow says that the expressions did not come to an end within evaluationLimit.
	ErrSlow = errors.New("the expressions of this cluster take too long for this token")
)

const (
	// maxEvaluated bounds the payload that expressions are evaluated over.
	maxEvaluated = 32 << 10
	// evaluationLimit bounds the evaluation of all expressions over one token, once it
	// is its turn. What the expressions may cost (safecel.TokenBudget) takes a tenth of
	// a second; this holds on a machine that is busy, and whatever the costs miss
	// (AUTH-17).
	evaluationLimit = time.Second
)

// Mapping makes an Identity of verified claims (AUTH-10, AUTH-11). It follows
// kube-apiserver's structured authentication but for what the comment of package
// authn lists.
type Mapping struct {
	turns    *ClusterTurns
	mappings apiserver.ClaimMappings
	mapper   authenticationcel.CELMapper
	required []apiserver.ClaimValidationRule // those on a claim
	// judgesEmail says that an expression of the author's looks at
	// email_verified, so that its answer counts (AUTH-11).
	judgesEmail bool
}

// NewMapping makes the mapping of an authenticator that was validated and
// compiled. turns are those of its cluster.
func NewMapping(j *k8swatch.JWT, turns *ClusterTurns) *Mapping {
	m := &Mapping{turns: turns, mappings: j.Authenticator.ClaimMappings, mapper: j.Mapper}
	for _, rule := range j.Authenticator.ClaimValidationRules {
		if rule.Claim != "" {
			m.required = append(m.required, rule)
		}
		m.judgesEmail = m.judgesEmail || strings.Contains(rule.Expression, "email_verified")
	}
	m.judgesEmail = m.judgesEmail || strings.Contains(m.mappings.Username.Expression, "email_verified")
	for _, extra := range m.mappings.Extra {
		m.judgesEmail = m.judgesEmail || strings.Contains(extra.ValueExpression, "email_verified")
	}
	return m
}

// usesClaims reports whether an expression reads the variable claims.
func (m *Mapping) usesClaims() bool {
	return m.mapper.Username != nil || m.mapper.Groups != nil || m.mapper.UID != nil ||
		m.mapper.Extra != nil || m.mapper.ClaimValidationRules != nil
}

// usesCEL reports whether anything is left to an expression.
func (m *Mapping) usesCEL() bool { return m.usesClaims() || m.mapper.UserValidationRules != nil }

// Identity maps the claims of a payload of so many bytes and holds them against
// the validation rules, when it is the token's turn. The error is one of those
// above.
func (m *Mapping) Identity(ctx context.Context, c Claims, bytes int) (*identity.Identity, error) {
	if m.usesCEL() {
		if bytes > maxEvaluated {
			return nil, ErrTooLarge
		}
		done, err := m.turns.take(ctx, bytes)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	limited, cancel := context.WithTimeout(ctx, evaluationLimit)
	defer cancel()
	id, err := m.identity(limited, c)
	switch {
	// An expression may go on with something else where a lookup failed because time was
	// over.
	case err == nil && limited.Err() == nil:
		return id, nil
	// An evaluation that was broken off is no verdict on the token.
	case ctx.Err() != nil:
		return nil, ErrBusy
	case limited.Err() != nil:
		return nil, ErrSlow
	}
	return nil, err
}

func (m *Mapping) identity(ctx context.Context, c Claims) (*identity.Identity, error) {
	ctx = safecel.WithBudget(ctx)
	var variable *lazyMap
	if m.usesClaims() {
		variable = celClaims(ctx, c)
	}
	id, a := &identity.Identity{}, newAllowance()
	if err := m.username(ctx, c, variable, id, a); err != nil {
		return nil, err
	}
	if err := m.groups(ctx, c, variable, id, a); err != nil {
		return nil, err
	}
	if err := m.uid(ctx, c, variable, id, a); err != nil {
		return nil, err
	}
	if err := m.extra(ctx, variable, id, a); err != nil {
		return nil, err
	}
	if a.exceeded {
		// A part of an identity is another identity: it is refused as a whole,
		// in every mode (ID-2).
		id = &identity.Identity{TooLarge: true}
	}
	if err := m.validate(ctx, c, variable, id); err != nil {
		return nil, err
	}
	return detach(id)
}

// username sets the name, or EmptyName for one that is present but null, empty
// or blank: that is refused later, as an identity and not as a login (ID-2), and
// never hidden by a prefix.
func (m *Mapping) username(ctx context.Context, c Claims, variable *lazyMap, id *identity.Identity, a *allowance) error {
	from := &m.mappings.Username
	name, ok, readsEmail := "", false, from.Claim == "email"
	switch {
	case m.mapper.Username != nil:
		watched := watch(variable)
		result, err := m.mapper.Username.EvalClaimMapping(ctx, watched)
		if err != nil {
			return evaluationError(err, ErrClaim)
		}
		// kube-apiserver looks for claims.email in the text alone; claims can be
		// read in other ways.
		readsEmail = watched.readEmail && !m.judgesEmail
		switch v := result.EvalResult.(type) {
		case types.String:
			name, ok = string(v), true
		case types.Null:
			ok = true
		}
	case c.IsNull(from.Claim):
		ok = true
	default:
		name, ok = c.Text(from.Claim)
	}
	if !ok {
		return ErrClaim
	}
	if readsEmail && !c.isTrue("email_verified") {
		return ErrEmailNotVerified
	}
	a.take(name)
	id.EmptyName = isBlank(name)
	id.Name = prefix(from.Prefix) + name
	return nil
}

// groups sets the groups, or Overage when the provider left them out.
func (m *Mapping) groups(ctx context.Context, c Claims, variable *lazyMap, id *identity.Identity, a *allowance) error {
	from := &m.mappings.Groups
	overage, ok := m.overage(c)
	if !ok {
		return ErrClaim
	}
	switch {
	case overage:
		// An expression would fail on the claim that is not there.
		id.Overage = true
	case m.mapper.Groups != nil:
		result, err := m.mapper.Groups.EvalClaimMapping(ctx, variable)
		if err != nil {
			return evaluationError(err, ErrClaim)
		}
		if id.Groups, err = celTextOrList(result.EvalResult, a); err != nil {
			return ErrClaim
		}
	case from.Claim != "":
		if boundedjson.Count(c[from.Claim]).Separators > MaxIdentityValues {
			a.exceeded = true // without reading so many groups
			return nil
		}
		list, ok := c.textOrList(from.Claim)
		if !ok {
			return ErrClaim
		}
		if !a.takeAll(list) {
			return nil
		}
		if p := prefix(from.Prefix); p != "" {
			for i, group := range list {
				list[i] = p + group
			}
		}
		id.Groups = list
	}
	id.Groups = distinct(id.Groups)
	return nil
}

// overage reports whether _claim_names (OpenID Connect Core, section 5.6.2) says
// that a mapped claim is to be fetched elsewhere. It never is: the URL would be
// one that a token names (AUTH-13). ok is false when _claim_names cannot be read.
func (m *Mapping) overage(c Claims) (overage, ok bool) {
	if !c.IsSet("_claim_names") {
		return false, true
	}
	var names map[string]json.RawMessage
	if err := json.Unmarshal(c["_claim_names"], &names); err != nil {
		return false, false
	}
	mapped := []string{m.mappings.Username.Claim, m.mappings.Groups.Claim, m.mappings.UID.Claim}
	if m.mappings.Groups.Expression != "" {
		mapped = append(mapped, "groups")
	}
	for _, claim := range mapped {
		if _, named := names[claim]; claim != "" && named {
			return true, true
		}
	}
	return false, true
}

func (m *Mapping) uid(ctx context.Context, c Claims, variable *lazyMap, id *identity.Identity, a *allowance) error {
	switch {
	case m.mapper.UID != nil:
		result, err := m.mapper.UID.EvalClaimMapping(ctx, variable)
		if err != nil {
			return evaluationError(err, ErrClaim)
		}
		uid, ok := result.EvalResult.(types.String)
		if !ok {
			return ErrClaim
		}
		id.UID = string(uid)
	case m.mappings.UID.Claim != "":
		uid, ok := c.Text(m.mappings.UID.Claim)
		if !ok {
			return ErrClaim
		}
		id.UID = uid
	}
	a.take(id.UID)
	return nil
}

// extra sets exactly what claim_mappings.extra says. kube-apiserver adds
// authentication.kubernetes.io/credential-id for a jti; that key belongs to the
// apiserver that reads it, so it is not added here.
func (m *Mapping) extra(ctx context.Context, variable *lazyMap, id *identity.Identity, a *allowance) error {
	if m.mapper.Extra == nil {
		return nil
	}
	results, err := m.mapper.Extra.EvalClaimMappings(ctx, variable)
	if err != nil {
		return evaluationError(err, ErrClaim)
	}
	for _, result := range results {
		from, ok := result.ExpressionAccessor.(*authenticationcel.ExtraMappingExpression)
		if !ok {
			return errors.New("the expression of an extra attribute is not known as such")
		}
		values, err := celTextOrList(result.EvalResult, a)
		if err != nil {
			return ErrClaim
		}
		if len(values) == 0 {
			continue
		}
		if id.Extra == nil {
			id.Extra = make(map[string][]string, len(results))
		}
		id.Extra[from.Key] = values
	}
	return nil
}

// validate holds the claims and the identity against the rules.
func (m *Mapping) validate(ctx context.Context, c Claims, variable *lazyMap, id *identity.Identity) error {
	for _, rule := range m.required {
		if value, ok := c.Text(rule.Claim); !ok || value != rule.RequiredValue {
			return ErrRule
		}
	}
	if rules := m.mapper.ClaimValidationRules; rules != nil {
		results, err := rules.EvalClaimMappings(ctx, variable)
		if err != nil {
			return evaluationError(err, ErrRule)
		}
		if !allTrue(results) {
			return ErrRule
		}
	}
	rules := m.mapper.UserValidationRules
	if rules != nil && id.Overage {
		// A rule cannot be held against groups that the provider left out.
		id.TooLarge = true
	}
	if rules != nil && !id.TooLarge {
		results, err := rules.EvalUser(ctx, celUser(ctx, id))
		if err != nil {
			return evaluationError(err, ErrRule)
		}
		if !allTrue(results) {
			return ErrRule
		}
	}
	return nil
}

// evaluationError is ErrTooLarge for an expression that used up its budget, and
// otherwise for any other error of one.
func evaluationError(err, otherwise error) error {
	if safecel.IsBudget(err) {
		return ErrTooLarge
	}
	return otherwise
}

func allTrue(results []authenticationcel.EvaluationResult) bool {
	for _, result := range results {
		if result.EvalResult != types.True {
			return false
		}
	}
	return true
}

func prefix(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
