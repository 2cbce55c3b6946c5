package authn

import (
	"context"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/safecel"
)

// mapping makes an Identity of verified claims (AUTH-10, AUTH-11). It follows
// kube-apiserver's structured authentication but for what the package comment
// lists.
type mapping struct {
	claims   apiserver.ClaimMappings
	mapper   authenticationcel.CELMapper
	required []apiserver.ClaimValidationRule // those on a claim
	// judgesEmail says that an expression of the author's looks at
	// email_verified, so that its answer counts (AUTH-11).
	judgesEmail bool
}

func newMapping(a *apiserver.JWTAuthenticator, mapper authenticationcel.CELMapper) *mapping {
	m := &mapping{claims: a.ClaimMappings, mapper: mapper}
	for _, rule := range a.ClaimValidationRules {
		if rule.Claim != "" {
			m.required = append(m.required, rule)
		}
		m.judgesEmail = m.judgesEmail || strings.Contains(rule.Expression, "email_verified")
	}
	m.judgesEmail = m.judgesEmail || strings.Contains(a.ClaimMappings.Username.Expression, "email_verified")
	for _, extra := range a.ClaimMappings.Extra {
		m.judgesEmail = m.judgesEmail || strings.Contains(extra.ValueExpression, "email_verified")
	}
	return m
}

// usesClaims reports whether an expression reads the variable claims.
func (m *mapping) usesClaims() bool {
	return m.mapper.Username != nil || m.mapper.Groups != nil || m.mapper.UID != nil ||
		m.mapper.Extra != nil || m.mapper.ClaimValidationRules != nil
}

// usesCEL reports whether anything is left to an expression.
func (m *mapping) usesCEL() bool { return m.usesClaims() || m.mapper.UserValidationRules != nil }

// identity maps the claims and holds them against the validation rules.
func (m *mapping) identity(ctx context.Context, c claims) (*identity.Identity, *Unauthenticated) {
	ctx = safecel.WithBudget(ctx)
	var variable traits.Mapper
	if m.usesClaims() {
		variable = celClaims(c)
	}
	id, r := &identity.Identity{}, newRoom()
	if refused := m.username(ctx, c, variable, id, r); refused != nil {
		return nil, refused
	}
	if refused := m.groups(ctx, c, variable, id, r); refused != nil {
		return nil, refused
	}
	if refused := m.uid(ctx, c, variable, id, r); refused != nil {
		return nil, refused
	}
	if refused := m.extra(ctx, variable, id, r); refused != nil {
		return nil, refused
	}
	if r.full {
		// A piece of an identity is another identity: it is refused as a
		// whole, in every mode (ID-2).
		id = &identity.Identity{TooLarge: true}
	}
	if refused := m.validate(ctx, c, variable, id); refused != nil {
		return nil, refused
	}
	return detached(id)
}

// username sets the name, or EmptyName for one that is present but null,
// empty or blank: that is refused later, as an identity and not as a login
// (ID-2), and never hidden by a prefix.
func (m *mapping) username(ctx context.Context, c claims, variable traits.Mapper, id *identity.Identity, r *room) *Unauthenticated {
	from := &m.claims.Username
	name, ok, readsEmail := "", false, from.Claim == "email"
	switch {
	case m.mapper.Username != nil:
		watched := watch(variable, c)
		result, err := m.mapper.Username.EvalClaimMapping(ctx, watched)
		if err != nil {
			return failed(err, errClaims)
		}
		// kube-apiserver looks for claims.email in the text alone; claims
		// can be read in other ways.
		readsEmail = watched.readEmail && !m.judgesEmail
		switch v := result.EvalResult.(type) {
		case types.String:
			name, ok = string(v), true
		case types.Null:
			ok = true
		}
	case c.isNull(from.Claim):
		ok = true
	default:
		name, ok = c.text(from.Claim)
	}
	if !ok {
		return errClaims
	}
	if readsEmail && !c.isTrue("email_verified") {
		return errEmailNotVerified
	}
	r.take(name)
	id.EmptyName = isBlank(name)
	id.Name = prefix(from.Prefix) + name
	return nil
}

// groups sets the groups, or Overage when the provider left them out.
func (m *mapping) groups(ctx context.Context, c claims, variable traits.Mapper, id *identity.Identity, r *room) *Unauthenticated {
	from := &m.claims.Groups
	overage, ok := m.overage(c)
	if !ok {
		return errClaims
	}
	switch {
	case overage:
		// An expression would fail on the claim that is not there.
		id.Overage = true
	case m.mapper.Groups != nil:
		result, err := m.mapper.Groups.EvalClaimMapping(ctx, variable)
		if err != nil {
			return failed(err, errClaims)
		}
		if id.Groups, err = celTextOrList(result.EvalResult, r); err != nil {
			return errClaims
		}
	case from.Claim != "":
		if boundedjson.Count(c[from.Claim]).Separators > maxIdentityValues {
			r.full = true // and is not made room for
			return nil
		}
		list, ok := c.textOrList(from.Claim)
		if !ok {
			return errClaims
		}
		if !r.takeAll(list) {
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

// overage reports whether _claim_names (OpenID Connect Core, section 5.6.2)
// says that a mapped claim is to be fetched elsewhere. It never is: the URL
// would be one that a token names (AUTH-13). ok is false when _claim_names
// cannot be read.
func (m *mapping) overage(c claims) (overage, ok bool) {
	raw, present := c["_claim_names"]
	if !present || string(raw) == "null" {
		return false, true
	}
	var names map[string]json.RawMessage
	if err := json.Unmarshal(raw, &names); err != nil {
		return false, false
	}
	mapped := []string{m.claims.Username.Claim, m.claims.Groups.Claim, m.claims.UID.Claim}
	if m.claims.Groups.Expression != "" {
		mapped = append(mapped, "groups")
	}
	for _, claim := range mapped {
		if _, named := names[claim]; claim != "" && named {
			return true, true
		}
	}
	return false, true
}

func (m *mapping) uid(ctx context.Context, c claims, variable traits.Mapper, id *identity.Identity, r *room) *Unauthenticated {
	switch {
	case m.mapper.UID != nil:
		result, err := m.mapper.UID.EvalClaimMapping(ctx, variable)
		if err != nil {
			return failed(err, errClaims)
		}
		uid, ok := result.EvalResult.(types.String)
		if !ok {
			return errClaims
		}
		id.UID = string(uid)
	case m.claims.UID.Claim != "":
		uid, ok := c.text(m.claims.UID.Claim)
		if !ok {
			return errClaims
		}
		id.UID = uid
	}
	r.take(id.UID)
	return nil
}

// extra sets exactly what claim_mappings.extra says. kube-apiserver adds
// authentication.kubernetes.io/credential-id for a jti; that key belongs to
// the apiserver that reads it, so it is not added here.
func (m *mapping) extra(ctx context.Context, variable traits.Mapper, id *identity.Identity, r *room) *Unauthenticated {
	if m.mapper.Extra == nil {
		return nil
	}
	results, err := m.mapper.Extra.EvalClaimMappings(ctx, variable)
	if err != nil {
		return failed(err, errClaims)
	}
	for _, result := range results {
		from, ok := result.ExpressionAccessor.(*authenticationcel.ExtraMappingExpression)
		if !ok {
			return errInternal
		}
		values, err := celTextOrList(result.EvalResult, r)
		if err != nil {
			return errClaims
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
func (m *mapping) validate(ctx context.Context, c claims, variable traits.Mapper, id *identity.Identity) *Unauthenticated {
	for _, rule := range m.required {
		if value, ok := c.text(rule.Claim); !ok || value != rule.RequiredValue {
			return errRule
		}
	}
	if rules := m.mapper.ClaimValidationRules; rules != nil {
		results, err := rules.EvalClaimMappings(ctx, variable)
		if err != nil {
			return failed(err, errRule)
		}
		if !allTrue(results) {
			return errRule
		}
	}
	rules := m.mapper.UserValidationRules
	if rules != nil && id.Overage {
		// A rule cannot be held against groups that the provider left out.
		id.TooLarge = true
	}
	if rules != nil && !id.TooLarge {
		results, err := rules.EvalUser(ctx, celUser(id))
		if err != nil {
			return failed(err, errRule)
		}
		if !allTrue(results) {
			return errRule
		}
	}
	return nil
}

// failed is the reason for an expression that gave an error.
func failed(err error, otherwise *Unauthenticated) *Unauthenticated {
	if safecel.IsBudget(err) {
		return errTooLarge
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

// detached copies the strings of an identity, so that one that is kept for
// minutes does not keep a whole token in memory through a substring. It is
// also the last look at what expressions made: text that is not UTF-8 is no
// name.
func detached(id *identity.Identity) (*identity.Identity, *Unauthenticated) {
	ok := true
	keep := func(s string) string {
		ok = ok && utf8.ValidString(s)
		return strings.Clone(s)
	}
	id.Name, id.UID = keep(id.Name), keep(id.UID)
	for i, group := range id.Groups {
		id.Groups[i] = keep(group)
	}
	for _, values := range id.Extra {
		for i, value := range values {
			values[i] = keep(value)
		}
	}
	if !ok {
		return nil, errClaims
	}
	return id, nil
}

func prefix(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func isBlank(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsSpace(r) }) < 0
}
