//go:build long

package crowd

import "testing"

// ID-3, ID-7: the same with 300,000 requests.
func TestLongID3EachRequestHasItsOwnIdentity(t *testing.T) { ownIdentity(t, 300_000) }
