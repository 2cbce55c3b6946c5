// Package admission runs the CustomResourceDefinition of ProxyKubeApi without
// an apiserver.
//
// It exists for two reasons. The directory source has no apiserver in front of
// it and must give the same verdicts (API-3, CONF-6). And an object read from
// an apiserver may be older than the CRD, so that all rules run again at each
// reconcile (API-3).
//
// The code is that of the apiserver, package by package: unknown fields and
// nulls (schema/pruning, schema/defaulting), defaults (schema/defaulting), the
// OpenAPI schema (apiserver/validation), metadata (api/validation), list types
// (schema/listtype) and CEL with the apiserver's cost budget (schema/cel), in
// the order of its decoder and of its create strategy.
//
// Objects come from authors who are trusted with their own cluster only. CEL
// runs with a cost budget and the schema bounds every string and list that a
// rule walks through. A refusal can hold values, which may be secrets: its
// Error is what the apiserver answers to the author, its Text is without
// values, for logs and for the status.
package admission
