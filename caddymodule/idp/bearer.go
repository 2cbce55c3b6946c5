package idp

// MaxBearer bounds a bearer in bytes (AUTH-2), that of a caller and an exchanged one.
const MaxBearer = 64 << 10

// IsBearer reports whether s is one run of visible ASCII, at most MaxBearer long:
// no space, no control character. RFC 6750 section 2.1 allows fewer characters,
// but tokens with a colon, a bar or a quotation mark are in use (Rancher's
// `token-x7k2p:…`, files of static tokens), and what validates a token says what
// it accepts (AUTH-1).
func IsBearer(s string) bool {
	if s == "" || len(s) > MaxBearer {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '!' || s[i] > '~' {
			return false
		}
	}
	return true
}
