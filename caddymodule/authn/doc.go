// Package authn authenticates requests: it takes the bearer out of the headers, and
// a Validator turns it into an identity.Identity.
//
// # Why it exists
//
// kube-apiserver has an OIDC authenticator of its own. This package uses its
// validation and its CEL packages, but not the authenticator. That one fetches a
// URL that the token names, asks the provider again for every unknown key id,
// accepts an empty name behind a prefix, and accepts several spellings of a claim.
// The table below lists every difference.
//
// # How it works
//
// A Factory makes one Validator for each cluster, of the compiled auth_config:
//
//	caching ── exchanging (token_exchange) ── jwtAuthenticators | oidcProvider | kubernetes
//
// The outer one remembers results and refusals, validates a token once for all
// requests that wait for it, and turns a panic into a refusal. Package claims
// makes an identity of claims, package keys has the keys of issuers, package idp
// asks identity providers.
//
// # Threat model
//
//   - A client writes any bytes as a token. Checks run in the order of their cost:
//     shape, algorithm, iss, aud and exp unverified, then the signature, and only
//     then everything else. A token that fails early fills no cache and reaches no
//     provider. Calls of a provider are limited per issuer, whatever the number of
//     tokens. A panic over a token refuses that token and ends nothing else.
//   - The administrators of the provider choose the values of claims, and perhaps
//     the names of some. A payload that two parsers could read differently is
//     refused: text that is not Unicode, half a surrogate pair, a name twice. ISS is
//     never taken for iss.
//   - The author of a ProxyKubeApi names the provider, so the provider is not
//     trusted either. It is asked over https only, without redirects, within bounds
//     of bytes and time, and for 100 keys at most. No error and no notice holds its
//     text. It decides about its own users and about nothing else: it shares no
//     cache entry with another configuration.
//   - A server that is asked about a token could use the token. So a token is
//     classified first, and sent to the provider that issued it and to no other
//     server. A token that looks like JOSE and can be read in two ways is sent
//     nowhere. Nor is a JWT that is expired, for another audience, or not signed by
//     the provider. Package idp bounds the calls, so that a flood of random tokens
//     does not flood the provider.
//   - With Kubernetes the apiserver of the cluster is asked, and gets every well-formed
//     bearer, as it would with the request. Its answer counts for this cluster and for
//     the connections that carried the question.
//   - Expressions have bounds: their cost, how many run at once, per cluster and in
//     all, and the size of the identity that they make (64 KiB, 1024 values; beyond
//     that TooLarge, a 403). So have signatures: how many are checked at once per
//     authenticator, and how many keys a token is tried against. Tokens of one
//     authenticator that wait for the issuer hold 4 MiB at most. A token that can be
//     judged with the known keys does not wait.
//   - With a token exchange the bearer itself decides where it may go, before it is
//     sent anywhere. A token that names an issuer, or could be read as if it did,
//     never reaches the endpoint of the exchange, which the author of a ProxyKubeApi
//     chose. The token that comes back is trusted no more than one that a client
//     sends: the same validator judges it.
//   - Credentials are secrets. The cache keeps digests of tokens, and no error holds
//     a piece of a token. Tokens from an exchange are kept themselves, since the proxy
//     sends them on: in memory, bounded, until they or the configuration end.
//
// # Verdicts
//
// An *Unauthenticated is a 401, an *Unavailable a 503, a *ReviewFailure a 502 or
// 503. A provider that cannot be asked never makes a 401, and never fails a token
// that can be judged with the known keys. These count for an hour when they cannot
// be read again; otherwise they are at most five minutes old whenever they are used.
// When a key is withdrawn, the answers that were verified with it end at the next
// read. A token from an exchange that the provider made wrong (expired, of another
// issuer, badly signed) is a 503. A token from an exchange that is for another
// audience, or of a user who may not enter, is a 401.
//
// A cluster that fills the cache drives out no answer of a cluster that holds no
// more than its share.
//
// # What an OidcProvider asks
//
// In this order; the first refusal ends it (AUTH-6, AUTH-7).
//
//	bearer                      claims_source UserInfo       Token
//	-------------------------   --------------------------   -----------------
//	JWS of the issuer           iss, aud, exp, signature;    the same, then its
//	                            then /userinfo, same sub     own claims
//	JWS of another issuer,      401                          401
//	  or without iss
//	JOSE that is ambiguous      401                          401
//	opaque, or a JWE: enforce   introspection: active, aud,  401
//	                            exp, iss; then /userinfo,
//	                            same sub
//	  cannot be introspected    401                          401
//	  warn                      the same if it can be, else  401
//	                            /userinfo alone
//	  off                       /userinfo alone              401
//
// A 401 or 403 of /userinfo and an inactive token are a 401. Every other
// answer that is not a JSON object with what was asked for is the provider's
// fault; an object that breaks the rules for claims is a 401 for its user.
//
// # Compared with kube-apiserver 1.37
//
// plugin/pkg/authenticator/token/oidc/oidc.go and
// pkg/authentication/request/{bearertoken,websocket}, as --authentication-config
// sets them up, against this package. integration/suites/identity/differential gives the same
// bearers to both, and fails when they differ in what is not said here, or no
// longer differ in what is.
//
//	subject                     kube-apiserver             here
//	-------------------------   ------------------------   ---------------------------
//	no bearer token             anonymous                  401 (AUTH-2)
//	two Authorization lines     the first counts           401 (AUTH-2)
//	"Bearer  t", "Bearer t x"   anonymous; x is ignored    401
//	bytes of a bearer           any                        b64token (RFC 6750), 64 KiB
//	Authorization and entry     the first that is good     401 unless they are equal
//	entry alone on a GET        ignored                    401
//	entry next to "" only       accepted                   401
//	entry spelled otherwise     passed on                  401
//	algorithms                  RS, PS, ES                 RS, PS, ES, EdDSA (AUTH-4)
//	crit, b64                   as go-jose supports        401
//	typ of another token        accepted                   401 (RFC 8725 3.12)
//	typ that is no string       accepted                   401
//	header, aud                 any size                   4 KiB, 64 commas; 16 KiB
//	base64url, stray bits       accepted                   401
//	invalid UTF-8, \ud800       U+FFFD                     401 (AUTH-10)
//	a name twice in an object   the last counts            401
//	ISS, Aud, eXp               read as iss, aud, exp      not read
//	null in aud                 left out                   401
//	exp, nbf out of range       as the processor has it    401 beyond the year 9999
//	exp, nbf as a string        read as a number           401
//	expired, but asked before   believed for ten seconds   401 (AUTH-12)
//	nbf                         one minute of leeway       five (AUTH-4)
//	iat, sub, nonce, at_hash    401                        not looked at
//	  of another type
//	RSA keys                    from 1024 bits             2048 to 4096, e <= 65537
//	keys tried without kid      all                        the first eight that fit
//	alg, use, key_ops of a JWK  not looked at              must allow the signature
//	x5c, padding of a JWK       can cost the whole set     not read, removed
//	unknown kid                 a fetch each time          a fetch in 5 s (AUTH-5)
//	bad signature, known kid    a fetch each time          no fetch
//	withdrawn key               believed for ever          gone after five minutes
//	provider unreachable        401                        503 (AUTH-13)
//	username null, ""           empty name                 EmptyName, a 403 (ID-2)
//	the same by expression      401                        EmptyName, a 403
//	email without its flag      accepted                   401 (AUTH-11)
//	  by an expression          claims.email is looked     401 however email is read,
//	                            for when it is compiled    unless email_verified is in
//	                                                       an expression
//	cost of an expression       a million each             30 000 each, 60 000 a token:
//	                                                       401; values count, not types
//	text, range in one call     any                        64 KiB, 8192: 401
//	pattern of matches, find    any                        a literal
//	size of an expression       any                        4 KiB, 400 nodes; an object's
//	                                                       32 KiB, 2000 nodes
//	payload for expressions     any                        32 KiB: 401
//	size of an identity         any                        64 KiB, 1024 values: a 403
//	null in a list of groups    the group ""               401
//	"" in a list of groups      a claim: kept;             the same, and the empty
//	                            an expression: left out    group is a 403 (ID-2)
//	groups twice                kept                       the first (AUTH-10)
//	uid, required claim null    ""                         401
//	split() alone as groups     401                        a list of strings
//	_claim_names                fetched                    Overage, a 403 (ID-2)
//	  of what is not mapped     must have a source         not looked at
//	jti                         extra credential-id        no extra
//	environment proxies         used                       not used
package authn
