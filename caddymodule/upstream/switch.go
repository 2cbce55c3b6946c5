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
)

// ErrUnexpectedSwitch says that the apiserver switched protocols although the
// client did not ask for that, or asked for another protocol (502, RELAY-4).
var ErrUnexpectedSwitch = errors.New("the apiserver switched to a protocol that was not asked for")

// checkSwitch compares a 101 with the protocol that was asked for, empty for
// none.
func checkSwitch(wanted string, res *http.Response) error {
	if wanted == "" {
		return ErrUnexpectedSwitch
	}
	got := res.Header["Upgrade"]
	if len(got) != 1 || !strings.EqualFold(got[0], wanted) ||
		!httpguts.HeaderValuesContainsToken(res.Header["Connection"], "Upgrade") {
		// The error does not name the protocol: the apiserver chose those bytes.
		return ErrUnexpectedSwitch
	}
	return nil
}

// informed is the context of one request. Its client trace is that of the
// request, but keeps the informational answers from Caddy, which would pass them
// on.
//
// On HTTP/2 net/http takes a 101 for an informational response and reports it to
// Got1xxResponse. Caddy's hook writes such a response to the client, which would
// see a protocol switch. An error from the hook fails the request, but httptrace
// returns the error of the outermost hook only, so the trace is not extended but
// replaced by a changed copy.
type informed struct {
	context.Context
	trace httptrace.ClientTrace
	// informational counts the informational answers.
	informational atomic.Int32
	// switched says that a 101 came: net/http keeps our error from errors.Is.
	switched atomic.Bool
	// continued says that a 100 came, where one is waited for.
	continued atomic.Bool
	// connected says that the request has got the connection that it asked for.
	connected atomic.Bool
	// The hooks of the request's own trace.
	getConn func(string)
	gotConn func(httptrace.GotConnInfo)
}

// informedKey is the key of the *informed itself.
type informedKey struct{}

// guard makes the context to send a request with.
func guard(ctx context.Context) *informed {
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil {
		trace = new(httptrace.ClientTrace)
		ctx = httptrace.WithClientTrace(ctx, trace)
	}
	i := &informed{Context: ctx, trace: *trace}
	i.trace.Got1xxResponse = i.got1xx
	i.getConn, i.trace.GetConn = i.trace.GetConn, i.asks
	i.gotConn, i.trace.GotConn = i.trace.GotConn, i.got
	return i
}

// Value returns the changed trace where the context holds the original one, under
// a key that only httptrace knows.
func (i *informed) Value(key any) any {
	if key == (informedKey{}) {
		return i
	}
	value := i.Context.Value(key)
	if _, ok := value.(*httptrace.ClientTrace); ok {
		return &i.trace
	}
	return value
}

// asks notes that the request asks for a connection: its first, or another one
// because the apiserver closed that (RELAY-5).
func (i *informed) asks(address string) {
	i.connected.Store(false)
	if i.getConn != nil {
		i.getConn(address)
	}
}

func (i *informed) got(info httptrace.GotConnInfo) {
	i.connected.Store(true)
	if !info.Reused {
		firstUse(info.Conn)
	}
	if i.gotConn != nil {
		i.gotConn(info)
	}
}

func (i *informed) got1xx(code int, header textproto.MIMEHeader) error {
	if code == http.StatusSwitchingProtocols {
		i.switched.Store(true)
		return ErrUnexpectedSwitch
	}
	// The server in front sends a 100 by itself once the body is read. Others are
	// not passed on: no client of Kubernetes uses them, and on HTTP/2 this runs in
	// the loop that reads for every request of the connection, which a client that
	// does not read would stop.
	if i.informational.Add(1) > maxInformational {
		return errInformational
	}
	return nil
}

// maxInformational is how many informational answers may come before the final
// one: net/http leaves it to this hook to bound them.
const maxInformational = 16

var errInformational = errors.New("the apiserver sent too many informational answers")
