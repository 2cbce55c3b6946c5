package probe

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"unicode/utf8"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// ReviewAgent is the User-Agent of reviews that are made for a caller, as the
// audit log of the apiserver shows it.
const ReviewAgent = "proxyauth-review"

// unauthenticated is the group of a caller who showed no credential.
const unauthenticated = "system:unauthenticated"

// The faults of an answer to Review.
var (
	// ErrNoReview is a 201 that is not a SelfSubjectReview, or names nobody.
	ErrNoReview = errors.New("the answer is no SelfSubjectReview")
	// ErrAnonymous is one about nobody: an apiserver that sees a bearer which it
	// does not know answers 401, so this one saw none.
	ErrAnonymous = errors.New("the answer is about an anonymous caller")
)

// Subject is whom an apiserver takes the bearer of a token for.
type Subject struct {
	Name   string
	Groups []string
}

// Review asks an apiserver whom it takes the bearer of a token for: a
// SelfSubjectReview with that token and no other credential (AUTH-8). rt is the
// connection of the relay, base the apiserver with its path base. It takes 10 s at most,
// or what ctx allows. Redirects are not followed. Of an answer 1 MiB is read, and
// a large one waits for its slot (boundedjson.Reader).
//
// The code is that of the answer, 0 when there was none; the subject is that of
// a 201. The error is ErrNoReview, ErrAnonymous, or what rt or reading the
// answer gave.
func Review(ctx context.Context, rt http.RoundTripper, base *url.URL, token string) (subject Subject, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := reviewRequest(ctx, base, ReviewAgent)
	if err != nil {
		return Subject{}, 0, err
	}
	req.Header["Authorization"] = []string{"Bearer " + token}
	// Present and empty it is not sent, and tells net/http that the request may
	// be sent again when a connection that was idle turns out to be gone.
	req.Header["Idempotency-Key"] = []string{}
	a, err := send(rt, req)
	defer a.done()
	switch {
	case errors.Is(err, boundedjson.ErrTooLarge):
		return Subject{}, a.code, ErrNoReview
	case err != nil:
		return Subject{}, 0, err
	case a.code == http.StatusCreated:
		subject, err = subjectOf(a.body)
	}
	return subject, a.code, err
}

// subjectOf takes the name and the groups. The uid and the extras stay behind:
// nothing here asks for them.
func subjectOf(body []byte) (Subject, error) {
	if !utf8.Valid(body) { // which the decoder would repair, to equal names perhaps
		return Subject{}, ErrNoReview
	}
	user, ok := reviewedUser(body)
	switch {
	case !ok || user.Username == "":
		return Subject{}, ErrNoReview
	case user.Username == anonymous || slices.Contains(user.Groups, unauthenticated):
		return Subject{}, ErrAnonymous
	}
	return Subject{Name: user.Username, Groups: user.Groups}, nil
}
