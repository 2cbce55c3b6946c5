package probe

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// ReviewAgent is the User-Agent of reviews that are made for a caller, as the
// audit log of the apiserver shows it.
const ReviewAgent = "proxyauth-review"

// unauthenticated is the group of a caller without a credential.
const unauthenticated = "system:unauthenticated"

// The faults of an answer to Review.
var (
	// ErrNoReview is a 201 that is not a SelfSubjectReview, or names no user.
	ErrNoReview = errors.New("the answer is no SelfSubjectReview")
	// ErrAnonymous is a review of an anonymous user. An apiserver that sees a
	// bearer which it does not know answers 401, so this one saw no bearer.
	ErrAnonymous = errors.New("the answer is about an anonymous caller")
)

// Subject is the user that an apiserver sees behind a token.
type Subject struct {
	Name   string
	Groups []string
}

// Review asks an apiserver which user a token belongs to: it sends a
// SelfSubjectReview with that token and no other credential (AUTH-8).
//
// code is the status of the answer, 0 without one; subject is set for a 201. The
// error is ErrNoReview, ErrAnonymous, boundedjson.ErrNoSlot, or the error of the
// transport.
func (s Apiserver) Review(ctx context.Context, token string) (subject Subject, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := s.reviewRequest(ctx, ReviewAgent)
	if err != nil {
		return Subject{}, 0, err
	}
	req.Header["Authorization"] = []string{"Bearer " + token}
	// A header that is present and empty is not sent. This one lets net/http send
	// the request again when an idle connection turns out to be gone.
	req.Header["Idempotency-Key"] = []string{}
	a, err := s.send(req)
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

// subjectOf reads the name and the groups. Nothing uses the uid and the extras.
func subjectOf(body []byte) (Subject, error) {
	if !utf8.Valid(body) { // the decoder would repair it, and two names could become one
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
