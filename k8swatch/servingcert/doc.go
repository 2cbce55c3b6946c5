// Package servingcert takes the certificate that the proxy serves TLS with from
// a Secret of type kubernetes.io/tls, and keeps the last good certificate while
// the Secret is missing or broken (CONF-4).
package servingcert
