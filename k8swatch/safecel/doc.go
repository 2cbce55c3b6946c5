// Package safecel compiles and runs the CEL expressions of a ProxyKubeApi at a
// bounded cost.
//
// # Why it exists
//
// Expressions are compiled and run by the packages of kube-apiserver, which
// has one author of expressions: its own administrator. Here every author of
// an object writes some, all of them run in one process, and callers write
// the claims that they run over. This package bounds what kube-apiserver leaves
// open. The language and the results are the same.
//
// # Threat model
//
//   - An expression of a few hundred bytes can take minutes to parse or to
//     type-check, or compile to megabytes (optMap doubles its target, literals
//     nest, a{1000} in a pattern is a thousand instructions). Inspect measures
//     it before the type-checker sees it.
//   - An expression can build much from little: replace, join, format,
//     lists.range and + are measured before they allocate, or are charged for
//     what they made. cel-go charges 1 for a call on dynamic values, and all
//     claims are dynamic; the costs here go by the values.
//   - A value may stand for more than it takes: a list of ten times the same list of
//     ten times the same list. What looks at all of a value is measured before it
//     runs, since nothing can interrupt it.
//   - A token is mapped by up to 163 expressions. They share one Budget, and
//     the end of a context ends them.
//   - Patterns are written by the author, never by a token: they must be
//     literals.
package safecel
