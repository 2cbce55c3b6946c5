package identity

import (
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// systemPrefix begins the names that Kubernetes keeps for itself. It is compared
// byte for byte, as Kubernetes compares its own names.
const systemPrefix = "system:"

// CheckUsername reports an identity whose username claim is present but empty or
// blank. It applies in every mode; Forward includes it.
func CheckUsername(id *Identity) *Violation {
	if id.EmptyName || isBlank(id.Name) {
		return &Violation{ReasonEmptyUsername, KindUserName}
	}
	return nil
}

// CheckPassthrough checks an identity that is not forwarded, because the
// apiserver reads the bearer itself.
func CheckPassthrough(id *Identity) *Violation {
	if id.TooLarge {
		return &Violation{ReasonTooLarge, KindTotal}
	}
	return CheckUsername(id)
}

// Forward puts the prefixes on an identity and makes the headers that assert it,
// or returns the first rule that the identity violates (ID-1, ID-2). The checks
// run in the order of the reasons: system_prefix, empty_username,
// untransmittable, too_large; and within each the user name, uid, groups, then
// extras. An identity that was too large to be kept is only too_large.
func Forward(id *Identity, s Settings) (*Forwarded, *Violation) {
	if id.TooLarge {
		return nil, &Violation{ReasonTooLarge, KindTotal}
	}
	f := prefixed(id, s)
	if v := checkReserved(f); v != nil {
		return nil, v
	}
	if v := CheckUsername(id); v != nil {
		return nil, v
	}
	if v := checkTransmittable(id, f, s); v != nil {
		return nil, v
	}
	if v := checkSize(id, f); v != nil {
		return nil, v
	}
	f.buildHeaders()
	return f, nil
}

// prefixed concatenates prefixes and names. All names share one string and
// all header values one slice, so that a request with many groups costs no
// more allocations than one with few.
func prefixed(id *Identity, s Settings) *Forwarded {
	size := len(s.UserPrefix) + len(id.Name)
	for _, group := range id.Groups {
		size += len(s.GroupPrefix) + len(group)
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteString(s.UserPrefix)
	b.WriteString(id.Name)
	for _, group := range id.Groups {
		b.WriteString(s.GroupPrefix)
		b.WriteString(group)
	}
	all := b.String()

	n := 1 + len(id.Groups)
	if s.ForwardUID {
		n++
	}
	values := make([]string, 0, n)
	end := len(s.UserPrefix) + len(id.Name)
	values = append(values, all[:end])
	for _, group := range id.Groups {
		start := end
		end += len(s.GroupPrefix) + len(group)
		values = append(values, all[start:end])
	}
	f := &Forwarded{
		User:   values[0],
		Groups: values[1:len(values):len(values)],
		Extra:  id.Extra,
		user:   values[0:1:1],
	}
	if s.ForwardUID && id.UID != "" {
		f.UID = id.UID
		values = append(values, id.UID)
		f.uid = values[len(values)-1 : len(values) : len(values)]
	}
	return f
}

func checkReserved(f *Forwarded) *Violation {
	if strings.HasPrefix(f.User, systemPrefix) {
		return &Violation{ReasonSystemPrefix, KindUserName}
	}
	for _, group := range f.Groups {
		if strings.HasPrefix(group, systemPrefix) {
			return &Violation{ReasonSystemPrefix, KindGroup}
		}
	}
	return nil
}

// checkTransmittable looks at the values before and after prefixing. Control
// characters in the concatenation are those of its parts, so only the edges
// differ between the two.
func checkTransmittable(id *Identity, f *Forwarded, s Settings) *Violation {
	if !transmittable(f.User) || edgeSpace(id.Name) {
		return &Violation{ReasonUntransmittable, KindUserName}
	}
	if s.ForwardUID && id.UID != "" && !transmittable(id.UID) {
		return &Violation{ReasonUntransmittable, KindUID}
	}
	for i, group := range id.Groups {
		if group == "" || edgeSpace(group) || !transmittable(f.Groups[i]) {
			return &Violation{ReasonUntransmittable, KindGroup}
		}
	}
	// The order of a map must not decide the answer: keys first, then values.
	for key := range id.Extra {
		if !transmittableKey(key) {
			return &Violation{ReasonUntransmittable, KindExtraKey}
		}
	}
	for _, values := range id.Extra {
		for _, value := range values {
			if value == "" || !transmittable(value) {
				return &Violation{ReasonUntransmittable, KindExtraValue}
			}
		}
	}
	return nil
}

func checkSize(id *Identity, f *Forwarded) *Violation {
	if id.Overage || len(f.Groups) > maxGroups {
		return &Violation{ReasonTooLarge, KindGroups}
	}
	total := len(f.User) + len(f.UID)
	for _, group := range f.Groups {
		total += len(group)
	}
	for key, values := range id.Extra {
		total += len(key)
		for _, value := range values {
			total += len(value)
		}
	}
	if total > maxBytes {
		return &Violation{ReasonTooLarge, KindTotal}
	}
	return nil
}

// transmittable reports whether a header carries s unchanged: valid UTF-8, no
// control character (Unicode Cc, which is more than HTTP forbids: U+0080 to
// U+009F are read as line ends by some software), no white space at the edges
// (RFC 9110 section 5.5 lets every hop remove it).
func transmittable(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= utf8.RuneSelf {
			return transmittableUTF8(s[i:]) && !edgeSpace(s)
		}
		if c < 0x20 || c == 0x7f {
			return false
		}
	}
	return !edgeSpace(s)
}

func transmittableUTF8(s string) bool {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n <= 1 || unicode.IsControl(r) {
			return false
		}
		i += n
	}
	return true
}

// edgeSpace reports whether s begins or ends with a character of the Unicode
// property White_Space, which is what unicode.IsSpace tests.
func edgeSpace(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	return unicode.IsSpace(first) || unicode.IsSpace(last)
}

func isBlank(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsSpace(r) }) < 0
}

// transmittableKey reports whether an apiserver would read the extra key back
// unchanged, and would not take it for one of Kubernetes' own. The apiserver
// lower-cases the header name before it decodes it
// (headerrequest.newExtra), so an upper-case key would arrive as another.
// authentication.kubernetes.io/* keys carry meaning of their own there (pod
// and node of a service account, credential id).
func transmittableKey(key string) bool {
	if key == "" || !transmittable(key) || strings.ToLower(key) != key {
		return false
	}
	domain, _, _ := strings.Cut(key, "/")
	for _, reserved := range reservedDomains {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return false
		}
	}
	return true
}

var reservedDomains = []string{"kubernetes.io", "k8s.io"}

// buildHeaders makes the canonical header pairs once, for Assert.
func (f *Forwarded) buildHeaders() {
	if len(f.Extra) == 0 {
		return
	}
	f.extra = make([]headerPair, 0, len(f.Extra))
	for key, values := range f.Extra {
		if len(values) == 0 {
			continue
		}
		f.extra = append(f.extra, headerPair{
			key:    http.CanonicalHeaderKey(extraHeaderPrefix + escapeExtraKey(key)),
			values: slices.Clip(slices.Clone(values)),
		})
	}
}

// escapeExtraKey percent-encodes the bytes that a header name may not hold, and
// the percent sign, as k8s.io/client-go/transport does. url.PathEscape would leave
// ':', '@' and '=', which are no token characters.
func escapeExtraKey(key string) string {
	n := 0
	for i := 0; i < len(key); i++ {
		if !plainInKey(key[i]) {
			n++
		}
	}
	if n == 0 {
		return key
	}
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(key)+2*n)
	for i := 0; i < len(key); i++ {
		if c := key[i]; plainInKey(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&0xf])
		}
	}
	return string(out)
}

// plainInKey reports whether c is a token character (RFC 9110 section 5.6.2)
// other than the percent sign.
func plainInKey(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '!', '#', '$', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}
