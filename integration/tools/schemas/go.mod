// Modules whose CustomResourceDefinitions the tests install. No code is built
// from them, so there is nothing for go mod tidy to keep.
module github.com/proxyauthk8s/caddy-proxyauthk8s/integration/tools/schemas

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/external-secrets/external-secrets v1.3.2
	github.com/hashicorp/vault-secrets-operator v0.10.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.6.0
)
