// Package tenant attacks the product as the owner of a namespace of the hub, and as
// the operator of a hostile apiserver. What they write must not reach another
// cluster's certificate, Secrets or URL, must not open a closed cluster, and must
// not delay others (API-4, API-5, CERT-1, TRUST-4).
package tenant
