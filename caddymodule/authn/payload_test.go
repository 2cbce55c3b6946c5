package authn

import "testing"

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
		c, err := parseClaims(payload)
		peeked, peekErr := peekClaims(payload)
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
