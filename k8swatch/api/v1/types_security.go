package v1

// SecurityConfig restricts what may be asked for.
type SecurityConfig struct {
	// enabled applies this block. Default: true.
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
	// allowed_resources is the allow list: what no rule allows is refused.
	// Empty allows everything. At most 128 rules. Default: empty. Refused by this
	// version: a cluster with rules is closed (InvalidSpec).
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:default={}
	AllowedResources []AllowedResource `json:"allowed_resources,omitempty"`
	// allowed_ressources is a former spelling; both lists are merged. At most
	// 128 rules. Default: empty. Refused by this version: a cluster with rules is
	// closed (InvalidSpec).
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:default={}
	AllowedRessources []AllowedResource `json:"allowed_ressources,omitempty"`
	// fail2login_equal_ban bans a client address after failed logins.
	// Default: no ban. Without effect in this version, with the notice
	// UnsupportedField.
	Fail2LoginEqualBan *Fail2LoginEqualBan `json:"fail2login_equal_ban,omitempty"`
	// rate_limiting limits the requests of each user. Default: no limit. Without
	// effect in this version, with the notice UnsupportedField.
	RateLimiting *RateLimiting `json:"rate_limiting,omitempty"`
	// per_user_group_rate_limiting replaces rate_limiting for the members of a
	// group; the most permissive group of a user wins. At most 128.
	// Default: none. Without effect in this version, with the notice
	// UnsupportedField.
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:default={}
	PerUserGroupRateLimiting []GroupRateLimiting `json:"per_user_group_rate_limiting,omitempty"`
}

// AllowedResource is one rule of the allow list: exactly one of its fields.
//
// +kubebuilder:validation:XValidation:rule="[has(self.Path), has(self.Crd)].filter(x, x).size() == 1",message="allowed resource: exactly one of Path, Crd must be set"
type AllowedResource struct {
	// Path allows a path.
	Path *PathRule `json:"Path,omitempty"`
	// Crd allows a resource, in its single and list forms.
	Crd *CrdRule `json:"Crd,omitempty"`
}

// PathRule allows a path.
//
// +kubebuilder:validation:XValidation:rule="self.path.startsWith('/')",message="path must start with '/'"
// +kubebuilder:validation:XValidation:rule="!self.parametised || self.path.matches('^[^{}]*(([{][{](username|group)[}][}])[^{}]*)*$')",message="only {{username}} and {{group}} may stand in a parametised path"
type PathRule struct {
	// path is the apiserver path that is allowed, from its first '/'.
	// +kubebuilder:validation:MaxLength=512
	Path string `json:"path"`
	// parametised reads path as a pattern: * stands for anything inside one
	// segment, ** for the rest, {{username}} and {{group}} for the caller's
	// name and each group, literally. Default: false, the path is exact.
	// +kubebuilder:default=false
	Parametised bool `json:"parametised,omitempty"`
	// allowed_ports limits port-forward to these ports and ranges ("8080",
	// "8000-8100"), 1 to 65535. At most 64. Default: no limit.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=11
	// +kubebuilder:validation:items:Pattern=`^[0-9]{1,5}(-[0-9]{1,5})?$`
	// +kubebuilder:validation:items:XValidation:rule="self.split('-').all(p, int(p) >= 1 && int(p) <= 65535) && (!self.contains('-') || int(self.split('-')[0]) <= int(self.split('-')[1]))",message="a port is 1 to 65535 and a range goes upwards"
	// +nullable
	AllowedPorts []string `json:"allowed_ports,omitempty"`
}

// CrdRule allows a resource.
type CrdRule struct {
	// group is the API group, "" for the core group.
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// version is the API version.
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version"`
	// kind is the kind of the resource.
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// plural is the resource's name in paths. Default: derived from kind.
	// +kubebuilder:validation:MaxLength=63
	// +nullable
	Plural *string `json:"plural,omitempty"`
	// namespaced says whether the resource lives in namespaces. Default: true.
	// +kubebuilder:default=true
	Namespaced *bool `json:"namespaced,omitempty"`
	// namespace restricts the rule to namespaces.
	Namespace NamespaceRule `json:"namespace"`
}

// NamespaceRule restricts a CrdRule to namespaces.
type NamespaceRule struct {
	// enabled applies rule_kind. Default: false, every namespace is allowed.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
	// rule_kind says which namespaces. Exactly one of its fields is set.
	RuleKind RuleKind `json:"rule_kind"`
}

// RuleKind is how namespaces are chosen: exactly one of its fields.
//
// +kubebuilder:validation:XValidation:rule="[has(self.AllowedNamespaces), has(self.DeniedNamespaces), has(self.ParametisedRule)].filter(x, x).size() == 1",message="rule_kind: exactly one of AllowedNamespaces, DeniedNamespaces, ParametisedRule must be set"
type RuleKind struct {
	// AllowedNamespaces allows these namespaces and no other. At most 256.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	AllowedNamespaces *[]string `json:"AllowedNamespaces,omitempty"`
	// DeniedNamespaces allows every namespace but these. At most 256.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	DeniedNamespaces *[]string `json:"DeniedNamespaces,omitempty"`
	// ParametisedRule allows the namespaces that match a pattern, with
	// {{username}} and {{group}} for the caller's name and each group.
	// +kubebuilder:validation:MaxLength=512
	ParametisedRule *string `json:"ParametisedRule,omitempty"`
}

// Fail2LoginEqualBan bans an address after failed logins.
type Fail2LoginEqualBan struct {
	// enabled applies the ban. Default: false.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
	// max_failed_logins is the number of failed logins that bans; the same
	// token counts once per ban_duration. Default: 5.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=""
	// +kubebuilder:default=5
	MaxFailedLogins *int64 `json:"max_failed_logins,omitempty"`
	// ban_duration is how long a ban lasts, in seconds. Default: 300.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=""
	// +kubebuilder:default=300
	BanDuration *int64 `json:"ban_duration,omitempty"`
	// exponential_backoff doubles each further ban of the same address.
	// Default: false.
	// +kubebuilder:default=false
	ExponentialBackoff bool `json:"exponential_backoff,omitempty"`
}

// RateLimiting limits the requests of a user.
type RateLimiting struct {
	// enabled applies the limit. Default: false.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
	// max_requests_per_minute is the number of requests of one user in a
	// minute; a watch or an exec counts once. Default: 60.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=""
	// +kubebuilder:default=60
	MaxRequestsPerMinute *int64 `json:"max_requests_per_minute,omitempty"`
}

// GroupRateLimiting limits the requests of the members of a group.
type GroupRateLimiting struct {
	// group is the name of the group.
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// max_requests_per_minute is the number of requests of each member in a
	// minute.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=""
	MaxRequestsPerMinute int64 `json:"max_requests_per_minute"`
}
