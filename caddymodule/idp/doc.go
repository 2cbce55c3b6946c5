// Package idp asks identity providers (AUTH-13).
//
// # Why it exists
//
// Keys, userinfo, introspection and token exchange are asked for by different
// packages, and all of them must bear the same provider: one that is slow,
// down, hostile, or flooded by somebody who sends tokens to us.
//
// # Threat model
//
//   - The author of a ProxyKubeApi names the provider. It is asked over https
//     only, without redirects, proxies of the environment or cookies; what it
//     answers is bounded in bytes and time. A Fault is in words of our own:
//     nothing a provider wrote is in it.
//   - There are as many providers as such authors like, and one process for all
//     clusters. Answers beyond 64 KiB share eight slots of the process, and
//     each answer is counted before room is made for its values: a member of an
//     object takes forty times its bytes (package boundedjson).
//   - A client sends any number of random tokens, each of which costs a call.
//     An Asker lets 16 calls go on at once, bounds what waits, and has a budget
//     of refusals: 2,000 at once, 100 a second. Tokens that were good before, or
//     whose signature was verified, are counted apart: a flood does not shut out
//     who is already there. Strange tokens are counted by source (WithSource) as
//     well: 500 refusals at once and 25 a second each. Those that had none
//     refused for 30 seconds have calls and a budget of their own, four tokens
//     at once each. So a flood from few addresses does not shut out who comes
//     from elsewhere, and one from very many costs no more than twice as much.
//     Of up to 4,096 sources it is known that tokens were refused.
//   - A token beyond its budget waits for up to 400 ms, in the order they come,
//     and only when as many wait already it is not asked about. So who sends few
//     at a time is slowed down, and a good token among many bad ones of its
//     source has the same chance as each of them, at every attempt.
//   - A provider that fails is not hammered either, and is asked again within
//     a moment of being back.
//   - Tokens are kept as digests, and no error holds a piece of one.
//
// Whoever is asked about tokens in another way, as an apiserver is, can be kept
// within the same bounds: that is what a Limiter is for.
package idp
