package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Of is a digest of values, in hexadecimal. purpose keeps the digests of different
// things apart. The values are text, bytes, numbers, booleans, nil and lists of
// these. They are hashed as Go writes them in source code, with text in quotes, so
// that no two different sequences give the same input to the hash.
func Of(purpose string, values ...any) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %#v", purpose, values)
	return hex.EncodeToString(h.Sum(nil))
}
