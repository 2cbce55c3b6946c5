package compile

import "testing"

func TestClusterDomain(t *testing.T) {
	for name, tt := range map[string]struct{ resolvConf, want string }{
		"no file":             {"", DefaultClusterDomain},
		"of a pod":            {"nameserver 10.96.0.10\nsearch team-a.svc.k8s.example.com svc.k8s.example.com k8s.example.com corp.example.com\noptions ndots:5\n", "k8s.example.com"},
		"tabs, dots, capital": {"search\tteam-a.svc.K8s.example.com. svc.k8s.example.com. k8s.example.com.", "k8s.example.com"},
		// A namespace may be called svc: svc.svc.<domain> is not its domain.
		"a pod in svc":         {"search svc.svc.k8s.example.com svc.k8s.example.com k8s.example.com\n", "k8s.example.com"},
		"one label":            {"search a.svc.k8s svc.k8s k8s", "k8s"},
		"searches before":      {"search own.example.com a.svc.k8s.test svc.k8s.test k8s.test", "k8s.test"},
		"the last line counts": {"search a.svc.one.test svc.one.test one.test\nsearch corp.example.com\n", DefaultClusterDomain},
		"of a host":            {"nameserver 127.0.0.53\nsearch corp.example.com\n", DefaultClusterDomain},
		"svc alone":            {"search svc.k8s.test k8s.test", DefaultClusterDomain},
		"another order":        {"search k8s.test svc.k8s.test a.svc.k8s.test", DefaultClusterDomain},
		"not a domain":         {"search a.svc.k_8s svc.k_8s k_8s", DefaultClusterDomain},
		"domain, no search":    {"domain svc.k8s.test\n# search a.svc.k8s.test svc.k8s.test k8s.test\n", DefaultClusterDomain},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ClusterDomain(tt.resolvConf); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
