// Package keys reads the keys that issuers publish and verifies signatures with
// them (AUTH-5).
//
// # Why it exists
//
// The key set of go-oidc reads the keys again for each signature that fails,
// whether the key is known or not, and never forgets a key that was withdrawn.
//
// # How it works
//
// A Registry has one Set for each issuer, discovery URL and certificate authority
// in use, whatever the number of clusters. An authenticator asks through a Handle
// of its own. A Set reads the keys when a token needs them: nothing runs while
// there are no requests. With traffic it reads them again before they are five
// minutes old. When they cannot be read, the known keys count for an hour.
//
// # Threat model
//
//   - Every client can send a token that names an issuer. An unknown key id has the keys
//     read again, a known one never. All unknown ones together have them read at most
//     once in five seconds, which is how long strangers can keep the proxy from a key
//     that the issuer has just begun to use. A key id that a client sends over and
//     over has them read once a minute. A token is tried against
//     eight keys at most. What waits for the provider is bounded in bytes per Handle,
//     and so is how many signatures are verified at once. A token that can be
//     verified with the known keys waits for no provider.
//   - The author of a ProxyKubeApi names the provider, and other clusters may use the
//     same provider. They share the keys, but the tokens for one cluster take no
//     room and no turn of another.
//   - A key set is bounded in bytes, in elements and in keys, a key in what a
//     verification with it costs. Keys that do not belong there, private ones for
//     example, are not read. A panic over an answer is a fault of the provider.
//   - When a key is withdrawn, the answers that were verified with it end at the next
//     read.
package keys
