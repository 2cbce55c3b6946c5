package serving

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Options are the options of the app that shape a Runtime. Configurations with
// equal options share one; every field is part of the key.
type Options struct {
	Directory           string
	Kubernetes          *HubOptions
	Namespace           string
	ClusterDomain       string
	AllowedModes        []v1.UpstreamMode
	AudienceValidation  string
	ReferenceNamespaces []string
	DeniedTargets       []string
	RequireValidation   bool
	UpstreamClientTTL   time.Duration
	TokenCacheTTL       time.Duration
	ProbeInterval       time.Duration
}

// HubOptions say how the hub is reached.
type HubOptions struct {
	Kubeconfig      string
	WatchNamespaces []string
	// ObjectSelector is a label selector, empty for every object.
	ObjectSelector string
	// LeaderElection is the name of the Lease, or ElectionOff.
	LeaderElection string
}

// ElectionOff has a process act as the leader without an election.
const ElectionOff = "off"

// installation names this proxy with all its replicas: <namespace>/<Lease>
// (REC-8). It is empty with a directory.
func (o Options) installation() string {
	if o.Kubernetes == nil {
		return ""
	}
	return o.Namespace + "/" + o.Kubernetes.LeaderElection
}

// Key is a digest of all options.
func (o Options) Key() string {
	b, err := json.Marshal(o)
	if err != nil {
		// Strings and numbers always marshal.
		panic(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
