package mechanism

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// TestProviderAgainstApiserver shows that the tokens of the test provider are
// those a real apiserver believes with structured authentication, so what the
// proxy says about them can be compared with it.
func TestProviderAgainstApiserver(t *testing.T) {
	idp := oidc.Start(t, oidc.Options{})
	a := kube.Start(t, kube.Options{AuthenticationConfig: fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %s
    audiences: [%s]
    certificateAuthority: |
%s
  claimMappings:
    username: {claim: preferred_username, prefix: "oidc:"}
    groups: {claim: groups, prefix: ""}
`, idp.Issuer, oidc.ClientID, indent(idp.CA.PEM))})

	bearer := func(token string) http.Header {
		return http.Header{"Authorization": {"Bearer " + token}}
	}
	login := idp.MustLogin(t, oidc.Alice, oidc.ClientID)
	// The apiserver fetches the keys in the background after its start.
	deadline := time.Now().Add(20 * time.Second)
	for {
		code, user := whoami(t, a, nil, bearer(login.IDToken))
		if code == http.StatusCreated {
			want := []string{"team-a", "a,b", "system:authenticated"}
			if user.Username != "oidc:alice" || !cmp.Equal(user.Groups, want) {
				t.Errorf("identity %+v", user)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("code %d", code)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if code, user := whoami(t, a, nil, bearer(idp.Token(oidc.Elodie, nil))); code != 201 || user.Username != "oidc:élodie" {
		t.Errorf("a minted token: %d, %+v", code, user)
	}
	if code, _ := whoami(t, a, nil, bearer(oidc.FlipSignatureBit(login.IDToken))); code != 401 {
		t.Errorf("a changed token: %d", code)
	}
}

func indent(pem []byte) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(string(pem)), "\n", "\n      ")
}
