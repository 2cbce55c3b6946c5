// Package oidc is a real OpenID provider for tests, built on zitadel/oidc: it
// does discovery, the authorization code flow with PKCE, refresh, client
// credentials, token exchange (RFC 8693), userinfo and introspection over
// HTTPS on 127.0.0.1, with an authority of its own.
//
// Beside what a provider does, a test can
//
//   - mint tokens with any claims, signed well (Mint) or in the ways of an
//     attacker (Unsigned, SymmetricWithPublicKey, ...),
//   - publish and withdraw signing keys (AddKey, UseKey, WithdrawKey),
//   - revoke access tokens and the API tokens of machines (RevokeAccessToken,
//     RevokeAPIToken),
//   - count the calls of each endpoint (Calls), and see what the token endpoint
//     was asked and how the client authenticated (TokenCalls), and
//   - make an endpoint fail or answer otherwise (SetFault, With), or the whole
//     provider go away (Suspend).
//
// Use this in tests only: the provider logs in every user without a password.
package oidc
