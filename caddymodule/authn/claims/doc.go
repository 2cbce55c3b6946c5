// Package claims reads the claims of a token and makes an identity of them
// (AUTH-10, AUTH-11).
//
// # Threat model
//
//   - The administrators of the provider choose the values of claims, and perhaps
//     the names of some. A payload that two parsers could read
//     differently is refused: text that is not Unicode, half a surrogate pair, a
//     name twice. ISS is never taken for iss.
//   - The author of a ProxyKubeApi writes the expressions. Their work on a token is
//     bounded: in their cost, in time, in the payload that they are evaluated over, and
//     in the size of the identity. An identity over the bounds is TooLarge as a whole; a
//     part of it would be another identity (ID-2).
//   - Namespaces, and in each its clusters, take turns by the time that their evaluations
//     take (Turns). Any number of objects of one author, new or changed ones too, keep
//     the tokens of another waiting for one evaluation at most. Whoever owns many
//     namespaces has one such evaluation in each before its price is known.
//   - No URL that a token names is fetched (_claim_sources).
package claims
