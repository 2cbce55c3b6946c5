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
//     only, without redirects, proxies of the environment or cookies. Its answers
//     are bounded in bytes and time. A Fault has the proxy's own words: nothing that
//     a provider wrote is in it.
//   - The authors choose how many providers there are, and one process asks for all
//     clusters. Answers beyond 64 KiB share eight slots of the process. The members
//     of an answer are counted before it is decoded: a decoded member of an object
//     takes forty times its bytes (package boundedjson).
//   - A client sends any number of random tokens, each of which costs a call. A
//     Limiter lets 16 calls go on at once, bounds what waits, and has a budget of
//     refusals: 2,000 at once, 100 a second. It has all this three times, for
//     three classes of tokens: those that were good before or are verified, those
//     of quiet sources, and the rest. So a flood shuts out neither known callers
//     nor new ones from elsewhere, and costs no more than twice as much.
//   - A source is the address of a client (WithSource). Of one source 500 tokens
//     may be refused at once and 25 a second. It is quiet when none of its tokens
//     was refused for 30 seconds, for four of its tokens at a time.
//   - A token beyond its budget waits for up to 400 ms, in the order they come,
//     and is not asked about when as many wait already. So a client that sends few
//     at a time is slowed down, and a good token among many bad ones of its source
//     has the same chance as each of them, at every attempt.
//   - A provider that fails is asked 32 times at once and 5 times a second, and
//     again without a limit with the first answer.
//   - Tokens are remembered by their digests, and no error holds a piece of one.
//
// A Limiter serves for any server that is asked about tokens, an apiserver too.
package idp
