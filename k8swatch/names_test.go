package k8swatch

import (
	"fmt"
)

func ExampleFrontProxySecret() {
	fmt.Println(FrontProxySecret(Key{Namespace: "team-a", Name: "prod"}))
	// Output: proxyauth-frontproxy-team-a.prod
}
