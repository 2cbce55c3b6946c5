// Package schemas gives real apiservers the CustomResourceDefinitions of other
// projects, so that what the chart and the recipes make for them is judged by
// the schema their users have: cert-manager, External Secrets Operator, Vault
// Secrets Operator, the Prometheus operator and the Gateway API.
//
// The definitions are files of these projects' Go modules, which
// tools/schemas/go.mod pins, with checksums in go.sum. Nothing of them is compiled.
package schemas
