package identity

import (
	"net/http"
	"strings"
)

// The canonical forms of the headers an apiserver reads the identity from.
const (
	userHeader        = "X-Remote-User"
	uidHeader         = "X-Remote-Uid"
	groupHeader       = "X-Remote-Group"
	extraHeaderPrefix = "X-Remote-Extra-"
)

// Forwarded is the forwarded identity: the user that the proxy asserts to the
// apiserver. Only Forward makes one. It is immutable, shared between requests,
// and holds its headers ready made.
type Forwarded struct {
	// User has the user prefix, each of Groups the group prefix.
	User   string
	Groups []string
	// UID is empty unless forward_uid is set.
	UID string
	// Extra is the identity's own map.
	Extra map[string][]string

	user, uid []string
	extra     []headerPair
}

type headerPair struct {
	key    string
	values []string
}

// Assert makes h assert exactly f: it removes every header under X-Remote-, in
// any spelling, then writes those of f (ID-3). It also takes these names out of
// Connection, so that no later hop removes what was written here (ID-7).
//
// Call it last, on the header that goes to the wire. The slices in h are those
// of f: http.Header's Set, Add and Del leave them alone, but the caller must not
// write into them.
//
// With a nil f it only removes.
func (f *Forwarded) Assert(h http.Header) {
	removeUnder(h, remotePrefix)
	cleanConnection(h)
	if f == nil || len(f.user) == 0 {
		return
	}
	h[userHeader] = f.user
	if len(f.Groups) > 0 {
		h[groupHeader] = f.Groups
	}
	if len(f.uid) > 0 {
		h[uidHeader] = f.uid
	}
	for i := range f.extra {
		h[f.extra[i].key] = f.extra[i].values
	}
}

func removeUnder(h http.Header, prefix string) {
	for key := range h {
		if foldedHasPrefix(key, prefix) {
			delete(h, key)
		}
	}
}

// cleanConnection removes the tokens of Connection that name an identity
// header. Caddy drops Connection before its transport runs and writes its own
// for an upgrade; a caller that does not must be as safe.
func cleanConnection(h http.Header) {
	values, ok := h["Connection"]
	if !ok {
		return
	}
	bad := false
	for _, value := range values {
		for token := range strings.SplitSeq(value, ",") {
			bad = bad || foldedHasPrefix(strings.TrimSpace(token), remotePrefix)
		}
	}
	if !bad {
		return
	}
	var kept []string
	for _, value := range values {
		for token := range strings.SplitSeq(value, ",") {
			token = strings.TrimSpace(token)
			if token != "" && !foldedHasPrefix(token, remotePrefix) {
				kept = append(kept, token)
			}
		}
	}
	if len(kept) == 0 {
		delete(h, "Connection")
		return
	}
	h["Connection"] = []string{strings.Join(kept, ", ")}
}
