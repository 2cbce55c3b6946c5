package v1

// The default port of a KubernetesService.
const defaultServicePort = 443

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
	if p.Spec.DashboardGroup != nil {
		return *p.Spec.DashboardGroup
	}
	return "dashboard-" + p.Namespace + "-" + p.Name
}

// NamespaceOr is the namespace of the Service, or that of the object.
func (k *KubernetesService) NamespaceOr(object string) string { return valueOr(k.Namespace, object) }

// NamespaceOr is the namespace of the reference, or that of the object.
func (r *KeyReference) NamespaceOr(object string) string { return valueOr(r.Namespace, object) }

// NamespaceOr is the namespace of the reference, or that of the object.
func (r *SecretReference) NamespaceOr(object string) string { return valueOr(r.Namespace, object) }

// NumberOrDefault is the number of the Service's port. Default: 443. It is not
// to be used when PortName is set.
func (k *KubernetesService) NumberOrDefault() int32 {
	if k.Port == nil {
		return defaultServicePort
	}
	return *k.Port
}

// NameOr is the name of the agent, or that of the object.
func (a *Agent) NameOr(object string) string {
	if a.Name == "" {
		return object
	}
	return a.Name
}

// EnabledOrDefault says whether the restrictions apply. Default: true.
func (s *SecurityConfig) EnabledOrDefault() bool { return isTrueOrNil(s.Enabled) }

// EnabledOrDefault says whether the API is served. Default: true.
func (v *VirtualAPI) EnabledOrDefault() bool { return isTrueOrNil(v.Enabled) }

// NamespacedOrDefault says whether the resource lives in namespaces. Default:
// true.
func (c *CrdRule) NamespacedOrDefault() bool { return isTrueOrNil(c.Namespaced) }

func isTrueOrNil(b *bool) bool { return b == nil || *b }

func valueOf(s *string) string { return valueOr(s, "") }

func valueOr(s *string, otherwise string) string {
	if s == nil {
		return otherwise
	}
	return *s
}
