package leakcheck

import (
	"encoding/base64"
	"iter"
	"testing"
)

// PieceLength is the length in bytes of the pieces that are looked for.
const PieceLength = 16

// Pieces are the pieces of credentials, with the names of those.
type Pieces map[string]string

// Add looks for a credential from now on.
func (p Pieces) Add(name, credential string) Pieces {
	for i := 0; i+PieceLength <= len(credential); i++ {
		p[credential[i:i+PieceLength]] = name
	}
	return p
}

// AddBearer is Add for a bearer token, also as the entry of
// Sec-WebSocket-Protocol that carries it.
func (p Pieces) AddBearer(name, token string) {
	p.Add(name, token)
	p.Add(name+", as a subprotocol", base64.RawURLEncoding.EncodeToString([]byte(token)))
}

// Has says whether a text holds a piece of any credential.
func (p Pieces) Has(text string) bool {
	for range p.find(text) {
		return true
	}
	return false
}

// Absent fails the test for each credential that text holds a piece of. Where
// says what text is.
func (p Pieces) Absent(tb testing.TB, where, text string) {
	tb.Helper()
	found := map[string]bool{}
	for at, name := range p.find(text) {
		if !found[name] {
			found[name] = true
			end := at + PieceLength
			tb.Errorf("%s: a piece of %s: %q in %q", where, name, text[at:end], text[max(0, at-100):min(len(text), end+24)])
		}
	}
}

// find yields where in text a piece begins, and whose it is.
func (p Pieces) find(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i := 0; i+PieceLength <= len(text); i++ {
			if name, ok := p[text[i:i+PieceLength]]; ok && !yield(i, name) {
				return
			}
		}
	}
}
