package compile

import (
	"reflect"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// sameCluster says whether nothing about a cluster changed. What is compiled or
// parsed is compared by what it was made from.
func sameCluster(a, b *k8swatch.Cluster) bool {
	if a == nil || b == nil {
		return false
	}
	x, y := *a, *b
	if x.FrontProxy != y.FrontProxy || x.ClientCert != y.ClientCert || (x.CA == nil) != (y.CA == nil) ||
		!sameJWT(x.Auth.JWT, y.Auth.JWT) || x.Auth.OIDC != y.Auth.OIDC || x.DeniedTargets != y.DeniedTargets {
		return false
	}
	x.CA, x.FrontProxy, x.ClientCert, x.Auth.JWT, x.Auth.OIDC, x.DeniedTargets = nil, nil, nil, nil, nil, nil
	y.CA, y.FrontProxy, y.ClientCert, y.Auth.JWT, y.Auth.OIDC, y.DeniedTargets = nil, nil, nil, nil, nil, nil
	return reflect.DeepEqual(x, y)
}

// sameJWT compares identity: a slice is compiled once for each auth_config.
func sameJWT(a, b []k8swatch.JWT) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
