package compile

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultClusterDomain is the DNS domain of a cluster that says nothing else.
const DefaultClusterDomain = "cluster.local"

// ClusterDomain reads the DNS domain of the cluster from the resolv.conf that the
// kubelet writes for a pod: it searches <namespace>.svc.<domain>, svc.<domain> and
// <domain>, in this order. Without these it is DefaultClusterDomain.
func ClusterDomain(resolvConf string) string {
	var searched []string
	for line := range strings.Lines(resolvConf) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "search" {
			searched = fields[1:] // the last line counts (resolv.conf(5))
		}
	}
	for i := range searched {
		searched[i] = strings.ToLower(strings.TrimSuffix(searched[i], "."))
	}
	for i := 0; i+2 < len(searched); i++ {
		domain := searched[i+2]
		if searched[i+1] == "svc."+domain && strings.HasSuffix(searched[i], "."+searched[i+1]) && len(validation.IsDNS1123Subdomain(domain)) == 0 {
			return domain
		}
	}
	return DefaultClusterDomain
}
