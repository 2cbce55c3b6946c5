package v1

import (
	"cmp"

	"k8s.io/utils/ptr"
)

// DefaultServicePort is the port of a KubernetesService that names none.
const DefaultServicePort = 443

// EnabledOrDefault says whether the cluster is served. Default: true.
func (s *ProxyKubeApiSpec) EnabledOrDefault() bool { return isTrueOrNil(s.Enabled) }

// ModeOrDefault is the upstream mode. Default: Passthrough. It may be a mode
// that this version does not know.
func (s *ProxyKubeApiSpec) ModeOrDefault() UpstreamMode {
	if s.UpstreamAuth == nil || s.UpstreamAuth.Mode == "" {
		return ModePassthrough
	}
	return s.UpstreamAuth.Mode
}

// UserPrefixOrDefault is the prefix of user names. Default: none.
func (s *ProxyKubeApiSpec) UserPrefixOrDefault() string {
	if s.UpstreamAuth == nil {
		return ""
	}
	return valueOf(s.UpstreamAuth.UserPrefix)
}

// GroupPrefixOrDefault is the prefix of groups. Default: none.
func (s *ProxyKubeApiSpec) GroupPrefixOrDefault() string {
	if s.UpstreamAuth == nil {
		return ""
	}
	return valueOf(s.UpstreamAuth.GroupPrefix)
}

// ValidateAgainstOrDefault is the validator of bearers. Default: Kubernetes.
func (s *ProxyKubeApiSpec) ValidateAgainstOrDefault() ValidateAgainst {
	if s.AuthConfig == nil || s.AuthConfig.ValidateAgainst == "" {
		return ValidateKubernetes
	}
	return s.AuthConfig.ValidateAgainst
}

// DashboardGroupOrDefault is the group that sees the cluster in the dashboard.
// Default: dashboard-<namespace>-<name>.
func (p *ProxyKubeApi) DashboardGroupOrDefault() string {
	return valueOr(p.Spec.DashboardGroup, "dashboard-"+p.Namespace+"-"+p.Name)
}

// NamespaceOr is the namespace of the Service, or that of the object.
func (k *KubernetesService) NamespaceOr(object string) string { return valueOr(k.Namespace, object) }

// NumberOrDefault is the number of the Service's port. Default: 443. It is not
// to be used when PortName is set.
func (k *KubernetesService) NumberOrDefault() int32 { return ptr.Deref(k.Port, DefaultServicePort) }

// NameOr is the name of the agent, or that of the object.
func (a *Agent) NameOr(object string) string { return cmp.Or(a.Name, object) }

// EnabledOrDefault says whether the restrictions apply. Default: true.
func (s *SecurityConfig) EnabledOrDefault() bool { return isTrueOrNil(s.Enabled) }

// EnabledOrDefault says whether the API is served. Default: true.
func (v *VirtualAPI) EnabledOrDefault() bool { return isTrueOrNil(v.Enabled) }

func isTrueOrNil(b *bool) bool { return ptr.Deref(b, true) }

func valueOf(s *string) string { return ptr.Deref(s, "") }

// valueOr takes an empty string for an absent one: objects may be older than the
// rule that refuses it.
func valueOr(s *string, otherwise string) string { return cmp.Or(valueOf(s), otherwise) }
