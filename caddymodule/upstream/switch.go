package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// ErrUnexpectedSwitch says that the apiserver switched protocols though
// nobody asked, or to another protocol than was asked for (502, RELAY-4).
var ErrUnexpectedSwitch = errors.New("the apiserver switched to a protocol that was not asked for")

// checkSwitch holds a 101 against the protocol that was asked for, empty for
// none.
func checkSwitch(wanted string, res *http.Response) error {
	if wanted == "" {
		return ErrUnexpectedSwitch
	}
	got := res.Header["Upgrade"]
	if len(got) != 1 || !strings.EqualFold(got[0], wanted) ||
		!httpguts.HeaderValuesContainsToken(res.Header["Connection"], "Upgrade") {
		// What it switched to is told to nobody: the bytes are the apiserver's.
		return ErrUnexpectedSwitch
	}
	return nil
}

// informed is the context of one request with its client trace but for the
// answers that are not Caddy's to pass on: a 101, and a 100.
//
// On HTTP/2 net/http takes a 101 for an informational response and reports it
// to Got1xxResponse; Caddy's hook writes what it is told to the client, who
// would see a protocol switch. An error from the hook fails the request, but
// httptrace returns the error of the outermost hook only, so the trace that
// is there is not added to but replaced by a copy.
type informed struct {
	context.Context
	trace  httptrace.ClientTrace
	inform func(int, textproto.MIMEHeader) error
	// switched says that a 101 came: net/http keeps our error from errors.Is.
	switched atomic.Bool
	// continued says that a 100 came, where one is waited for.
	continued atomic.Bool
}

// guard makes the context to send a request with.
func guard(ctx context.Context) *informed {
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil {
		trace = new(httptrace.ClientTrace)
		ctx = httptrace.WithClientTrace(ctx, trace)
	}
	i := &informed{Context: ctx, trace: *trace, inform: trace.Got1xxResponse}
	i.trace.Got1xxResponse = i.got1xx
	return i
}

// Value has our trace in the place of the one that is there, whose key is
// httptrace's own.
func (i *informed) Value(key any) any {
	value := i.Context.Value(key)
	if _, ok := value.(*httptrace.ClientTrace); ok {
		return &i.trace
	}
	return value
}

func (i *informed) got1xx(code int, header textproto.MIMEHeader) error {
	if code == http.StatusSwitchingProtocols {
		i.switched.Store(true)
		return ErrUnexpectedSwitch
	}
	// The server in front says 100 by itself once the body is read, and it
	// need not be said twice.
	if i.inform == nil || code == http.StatusContinue {
		return nil
	}
	// All clusters of the path form share one origin (ID-5), and what an
	// interim answer says of cookies is nobody's to keep (RFC 8297).
	identity.ScrubResponse(http.Header(header), false)
	return i.inform(code, header)
}
