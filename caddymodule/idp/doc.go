// Package idp asks identity providers (AUTH-13): it has the HTTP client and the
// limits of what a provider is asked.
//
// # Why it exists
//
// Keys, userinfo, introspection and token exchange are asked for by different
// packages. Each of them meets a provider that is slow, down, hostile, or flooded
// through this proxy, and none may fail other clusters for it.
//
// # Threat model
//
//   - The author of a ProxyKubeApi names the provider. It is asked over https
//     only, without redirects, proxies of the environment or cookies, and at no
//     denied target (package egress), whether the object names the address or the
//     provider does. Its answers
//     are bounded in bytes and time. A Fault has the proxy's own words: nothing that
//     a provider wrote is in it.
//   - The authors choose how many providers there are, and one process asks for all
//     clusters. Answers beyond 64 KiB share eight slots of the process, of which an
//     object has two at most and a namespace four. The members of an answer are
//     counted before it is decoded: a decoded member of an object takes forty times
//     its bytes (package boundedjson).
//   - A client sends any number of random tokens, each of which costs a call. So a
//     Limiter has three classes of tokens: those that were good before or whose
//     signature was verified, those of quiet sources, and the rest. Each class has
//     16 calls at a time, bytes for the tokens that wait, and a budget of 2,000
//     refusals at once and 100 a second. A flood of random tokens fills the last
//     two classes at most: it shuts out no known caller.
//   - A source is the address of a client (WithSource). The provider may refuse 500
//     tokens of one source at once, and 25 a second. A source is quiet when none of
//     its tokens was refused for 30 seconds, and only four of its tokens at a time
//     count as those of a quiet source.
//   - A token for which the budget has no room waits for up to 400 ms, in order of
//     arrival. Those that would wait longer are not asked about. So a client that
//     sends few bad tokens at a time is slowed down, and a good token among many bad
//     ones of its source has the same chance as each of them, at every attempt.
//   - A provider that fails is asked 32 times at once and 5 times a second. Its
//     first good answer ends this limit.
//   - Tokens are remembered by their digests, and no error holds a piece of one.
//
// A Limiter serves for any server that is asked about tokens, an apiserver too.
package idp
