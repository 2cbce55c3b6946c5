// Package tenant attacks the product as somebody who owns a namespace of the
// hub, and as the operator of an apiserver that means no good: what they write
// there must neither reach another cluster's certificate, Secrets or URL, nor
// open what was closed, nor hold up others (API-4, API-5, CERT-1, TRUST-4).
package tenant
