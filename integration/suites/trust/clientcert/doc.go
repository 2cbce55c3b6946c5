// Package clientcert holds the tests of client_cert (CERT-9) and of Reachable
// (REC-6): on real apiservers, of which one knows the certificate's CA and one
// has no anonymous user, and on servers that demand a certificate or answer
// badly.
package clientcert
