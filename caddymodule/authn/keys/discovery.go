package keys

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

const wellKnownPath = "/.well-known/openid-configuration"

// Endpoints are the addresses that a provider names in its discovery document.
type Endpoints struct {
	keys string
	// Userinfo and Introspection are empty when there is none that may be asked:
	// it must be an https URL without user info.
	Userinfo, Introspection string
	// SecretInForm says that the introspection endpoint wants client_id and
	// client_secret in the form (client_secret_post).
	SecretInForm bool
}

// get has read judge one document. Its errors are faults.
func get(ctx context.Context, client *idp.Client, address string, read func(document []byte) error) error {
	request, err := idp.NewGet(ctx, address)
	if err != nil {
		return err
	}
	// A kube-apiserver gives the keys of its ServiceAccounts as a JWK Set, and
	// answers 406 to those who ask for JSON alone.
	request.Header.Set("Accept", "application/json, application/jwk-set+json")
	return client.Do(request, func(r *idp.Response) error {
		if r.Status != http.StatusOK {
			return r.Unexpected()
		}
		if json.Valid(r.Body) && boundedjson.Count(r.Body).TooManyElements() {
			return idp.TooManyElements
		}
		return read(r.Body)
	})
}

// discover reads the discovery document. It must be the issuer's own: this is
// what binds keys to the iss of a token (OpenID Connect Discovery, section 4.3),
// also with a discovery URL elsewhere.
func discover(ctx context.Context, client *idp.Client, issuer, discoveryURL string) (found Endpoints, err error) {
	if discoveryURL == "" {
		discoveryURL = strings.TrimSuffix(issuer, "/") + wellKnownPath
	}
	err = get(ctx, client, discoveryURL, func(document []byte) (err error) {
		found, err = readDiscovery(document, issuer)
		return err
	})
	return found, err
}

func readDiscovery(body []byte, issuer string) (Endpoints, error) {
	var document struct {
		Issuer        string          `json:"issuer"`
		Keys          string          `json:"jwks_uri"`
		Userinfo      json.RawMessage `json:"userinfo_endpoint"`
		Introspection json.RawMessage `json:"introspection_endpoint"`
		Methods       json.RawMessage `json:"introspection_endpoint_auth_methods_supported"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return Endpoints{}, idp.Fault("its discovery document cannot be read")
	}
	if document.Issuer != issuer {
		return Endpoints{}, idp.Fault("its discovery document names another issuer")
	}
	if !idp.Address(document.Keys) {
		return Endpoints{}, idp.Fault("its jwks_uri is not an https URL")
	}
	e := Endpoints{keys: document.Keys, Userinfo: optional(document.Userinfo)}
	if inForm, ok := secretInForm(document.Methods); ok {
		e.Introspection, e.SecretInForm = optional(document.Introspection), inForm
	}
	return e, nil
}

// optional is an address that a provider need not name.
func optional(raw json.RawMessage) string {
	var address string
	if len(raw) == 0 || json.Unmarshal(raw, &address) != nil || !idp.Address(address) {
		return ""
	}
	return address
}

// secretInForm chooses how to authenticate with a client secret. Nothing said
// means client_secret_basic (RFC 8414 section 2 has it so for the other
// endpoints). ok is false when the endpoint takes a secret in neither way.
func secretInForm(raw json.RawMessage) (inForm, ok bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return false, true
	}
	var methods []string
	if json.Unmarshal(raw, &methods) != nil {
		return false, false
	}
	inForm = !slices.Contains(methods, "client_secret_basic")
	return inForm, !inForm || slices.Contains(methods, "client_secret_post")
}
