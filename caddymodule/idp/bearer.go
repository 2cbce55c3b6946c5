package idp

// MaxBearer bounds a bearer in bytes (AUTH-2), that of a caller and an exchanged one.
const MaxBearer = 64 << 10

// IsBearer reports whether s is a b64token (RFC 6750 section 2.1) of
// length up to MaxBearer: no space, comma, control character or quote.
func IsBearer(s string) bool {
	if len(s) > MaxBearer {
		return false
	}
	end := len(s)
	for end > 0 && s[end-1] == '=' {
		end--
	}
	var strange byte
	for i := 0; i < end; i++ { // no branch: good tokens are what takes time
		strange |= strangeByte[s[i]]
	}
	return strange == 0 && end > 0
}

// strangeByte is 1 for what a b64token does not hold before its padding.
var strangeByte = func() (table [256]byte) {
	for i := range table {
		table[i] = 1
	}
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/" {
		table[c] = 0
	}
	return table
}()
