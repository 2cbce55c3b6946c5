package identity

// Identity is the proxy identity: the user that the claims of a bearer were
// mapped to, before the prefixes of upstream_auth are put in front. It is shared
// between requests and must not be changed.
type Identity struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string

	// EmptyName says that the username was present but null, empty or blank
	// before any prefix was put in front of it (ID-2).
	EmptyName bool
	// Overage says that the provider left the mapped groups out of the token
	// because they were too many (_claim_names names a mapped claim, ID-2).
	Overage bool
	// TooLarge says that the identity is so large that it was not kept; the
	// rest of it is empty (ID-2).
	TooLarge bool
}

// Settings says what Forward does with an Identity (spec.upstream_auth).
type Settings struct {
	// UserPrefix and GroupPrefix are put in front of the name and each group.
	UserPrefix  string
	GroupPrefix string
	// ForwardUID sends the uid as X-Remote-Uid.
	ForwardUID bool
}

// The limits of a forwarded identity (ID-2). They keep its headers well below
// the header limit of an apiserver and of the proxies in front of one.
const (
	maxGroups = 64
	maxBytes  = 8192
)

// Reason is the rule that an identity violates. It is the value of the reason
// label of proxyauth_upstream_identity_refused_total.
type Reason string

// The reasons of ID-2, in the order in which they are looked for.
const (
	ReasonSystemPrefix    Reason = "system_prefix"
	ReasonEmptyUsername   Reason = "empty_username"
	ReasonUntransmittable Reason = "untransmittable"
	ReasonTooLarge        Reason = "too_large"
)

// The kinds of value that a Violation can be about.
const (
	KindUserName   = "the user name"
	KindUID        = "the uid"
	KindGroup      = "a group"
	KindGroups     = "the groups"
	KindExtraKey   = "an extra key"
	KindExtraValue = "an extra value"
	KindTotal      = "the whole identity"
)

// Violation says why an identity is not sent to an apiserver: the request is
// answered with 403 (ID-2). It holds nothing of the identity, so all of it may be
// shown.
type Violation struct {
	Reason Reason
	// Kind is the kind of value that violates the rule.
	Kind string
}

// Message is the text for the answer, the Warning header and the audit line.
func (v *Violation) Message() string {
	what := "cannot be forwarded"
	switch v.Reason {
	case ReasonSystemPrefix:
		what = "has a reserved system: name or group"
	case ReasonEmptyUsername:
		what = "has no username for the configured claim"
	case ReasonUntransmittable:
		what = "has a value it cannot forward"
	case ReasonTooLarge:
		what = "is too large to forward"
	}
	return "the identity given to the proxy " + what + " (" + v.Kind + ")"
}

// Error is Message.
func (v *Violation) Error() string { return v.Message() }
