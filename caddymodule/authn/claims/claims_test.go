package claims

import (
	"encoding/json"
	"testing"
)

// The peek sees what is read after the verification, or less where names are
// escaped.
func FuzzPeekClaims(f *testing.F) {
	for _, seed := range []string{
		`{"sub":"alice","groups":["dev","ops"]}`, `{"iss" : "a\\" , "aud":["x","}"],"exp":1 ,"nbf":{"exp":2},"n":-1.5}`,
		`{"i\u0073s":"a","iss":"b"}`, `{"exp":1,"exp":2}`, "{\"azp\":\"\xff\"}", `[]`, `{"a":[true,false,null,-1.5e+3]} `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := Parse(payload)
		peeked, peekErr := Peek(payload)
		if err == nil && peekErr != nil {
			t.Errorf("the peek refuses: %v", peekErr)
		}
		for name, raw := range peeked {
			if err == nil && string(c[name]) != string(raw) {
				t.Errorf("the peek reads %q as %q, want %q", name, raw, c[name])
			}
		}
	})
}

// As kube-apiserver does, for one issuer only.
func TestGoogleIssuer(t *testing.T) {
	for issuer, want := range map[string]string{
		"accounts.google.com":         "https://accounts.google.com",
		"https://accounts.google.com": "https://accounts.google.com",
		"idp.example.test":            "idp.example.test",
	} {
		raw, err := json.Marshal(issuer)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := Claims{"iss": raw, "aud": json.RawMessage(`"a"`), "exp": json.RawMessage(`1`)}.Registered()
		if !ok || r.Issuer != want {
			t.Errorf("%s is read as %s, %t", issuer, r.Issuer, ok)
		}
	}
}
