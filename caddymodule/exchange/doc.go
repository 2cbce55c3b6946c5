// Package exchange exchanges the long-lived token of a machine for one that a
// cluster accepts (OAuth 2.0 Token Exchange, RFC 8693).
//
// # Why it exists
//
// golang.org/x/oauth2 has no call for this grant, and its token endpoint code
// puts what a provider wrote into its errors. What is needed is one form and
// one answer, read more strictly than a general client may.
//
// # Threat model
//
//   - The subject token and the client secret are credentials. They are sent to
//     the token endpoint alone, in the body of a POST or in its Authorization,
//     never in a URL, by package idp: https, no redirect.
//     No error holds a piece of either, nor of the tokens that come back.
//   - The client chooses the subject token. It is written as one value of a form, so
//     that no byte of it adds a parameter. An idp.Asker bounds how often bad tokens
//     are sent.
//   - The provider is chosen by the author of a ProxyKubeApi and answers with
//     any bytes. They are bounded, must be one JSON object that can be read in
//     one way, and the token in it must be made of the bytes of a bearer: it
//     may become a header. This package does not decide whether it is a token of
//     this cluster: the caller validates it.
//   - An answer that may be trouble of the provider is a fault (503). So is a token
//     that is not of the kind to forward. Only an OAuth error of the provider is a
//     refusal (401).
//
// # Which token is used
//
// An answer has the token that was issued in access_token, whatever its type
// (RFC 8693 section 2.2.1), and issued_token_type says which that is. Kanidm
// answers as a code exchange does, with an ID token in id_token beside an
// access token, and writes the type as a bare name (AUTH-16). So:
//
//	forward       issued_token_type       id_token beside   what is used
//	-----------   ---------------------   ---------------   ------------
//	IdToken       any                     yes               id_token
//	IdToken       id_token                no                access_token
//	IdToken       another, or none        no                fault
//	AccessToken   access_token, jwt,      any               access_token
//	              none, or another that
//	              was asked for
//	AccessToken   id_token                another token     access_token
//	AccessToken   id_token                no, or the same   fault
//	AccessToken   another                 any               fault
//
// A refresh token or a SAML assertion is never used, also when it was asked for: the
// apiserver could use the refresh token, and neither is a bearer. The names are read as
// urn:ietf:params:oauth:token-type:access_token or bare, in any case and with
// or without the underscore: AccessToken. In the row with
// "another token" a provider says that it issued an ID token and gives an access
// token beside it, as Kanidm does the other way round. In the row below there is no
// access token beside it, so the answer has no token of the kind to forward.
//
// # Client authentication
//
// A client without a secret is public: its client_id in the form is all. With
// a secret it is sent as client_secret_basic, which every server has to accept
// that issued one (RFC 6749 section 2.3.1), with client_id in the form as
// well: Kanidm reads it there, and it is no second method without the secret.
// Servers exist that accept client_secret_post only, by their nature or
// because the client is registered so, and nothing in a ProxyKubeApi says
// which. So a request that is refused as invalid_client is sent once more with
// the other method. As long as neither has brought a token, this goes for
// invalid_request and unauthorized_client as well, since servers use these for
// a secret that is missing where they look for it, or for too many places that
// name a client. The method that brought a token is the first of the next
// request. A refusal changes nothing: it may be about the subject token, and one
// client's token must not decide about the method for all clients.
//
// This is sound: both requests go to the same endpoint under the same
// certificate and give it the same secret, so that there is nothing to be
// downgraded; an exchange that was refused has used up nothing; and what it
// costs is one more request for a refused token where no token was ever
// exchanged, or where the provider does not know the client.
package exchange
