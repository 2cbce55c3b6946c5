package compile

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/reference"
)

// agentServerName is a name that the certificate of every apiserver has. It is the
// default behind an agent, which may reach the apiserver at any address.
const agentServerName = "kubernetes.default.svc"

// endpoint is where an apiserver is, as far as the object and its Service say.
type endpoint struct {
	target     k8swatch.Target
	serverName string
	problems   []problem
	stale      []string
}

// resolvedPort is the port a named port of a Service had when it was last seen.
type resolvedPort struct {
	namespace, name, portName string
	port                      int32
}

func (b *builder) endpoint() endpoint {
	p := b.serviceOrURL()
	name := b.spec.TLSServerName
	if name == "" {
		return p
	}
	if !validServerName(name) {
		p.problems = append(p.problems, invalid("spec.tls_server_name", "must be a host name or an IP address"))
		return p
	}
	p.serverName = strings.ToLower(name)
	return p
}

func (b *builder) serviceOrURL() endpoint {
	s := b.spec.Service
	switch {
	case s.ExternalService != nil:
		p := externalEndpoint(s.ExternalService.URL)
		p.problems = append(p.problems, b.deniedHost("spec.service.ExternalService.url", p.serverName)...)
		return p
	case s.KubernetesService != nil:
		return b.kubernetesEndpoint(s.KubernetesService)
	case s.Agent != nil:
		return b.agentEndpoint(s.Agent)
	}
	return endpoint{problems: []problem{invalid("spec.service", "exactly one of ExternalService, KubernetesService, Agent must be set")}}
}

func externalEndpoint(raw string) endpoint {
	target, host, err := parseTargetURL(raw)
	if err != nil {
		return endpoint{problems: []problem{invalid("spec.service.ExternalService.url", err.Error())}}
	}
	return endpoint{target: target, serverName: host}
}

func (b *builder) agentEndpoint(agent *v1.Agent) endpoint {
	name := agent.NameOr(b.key.Name)
	p := endpoint{serverName: agentServerName}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		p.problems = append(p.problems, invalid("spec.service.Agent.name", "must be a DNS name"))
	} else {
		p.target = k8swatch.Target{
			Kind:      k8swatch.TargetAgent,
			Canonical: "agent:" + b.key.Namespace + "/" + name,
			Host:      agentServerName,
		}
	}
	p.problems = append(p.problems, unsupported("spec.service.Agent", ""))
	return p
}

// kubernetesEndpoint dials a Service by its name. A port number is known without
// the Service, so that the target stays the same while the Service is missing:
// only a change of spec.service ends streams (STREAM-1).
func (b *builder) kubernetesEndpoint(ref *v1.KubernetesService) endpoint {
	const path = "spec.service.KubernetesService"
	namespace := ref.NamespaceOr(b.key.Namespace)
	var p endpoint
	if len(validation.IsDNS1123Label(ref.Name)) > 0 {
		p.problems = append(p.problems, invalid(path+".name", "must be the name of a Service"))
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 {
		p.problems = append(p.problems, invalid(path+".namespace", "must be the name of a namespace"))
	}
	if ref.Port != nil && (*ref.Port < 1 || *ref.Port > 65535) {
		p.problems = append(p.problems, invalid(path+".port", "must be 1 to 65535"))
	}
	if len(p.problems) > 0 {
		return p
	}
	port, problems, stale := b.servicePort(namespace, ref)
	p.problems, p.stale = problems, stale
	p.serverName = ref.Name + "." + namespace + ".svc"
	if port != 0 {
		p.target = b.serviceTarget(namespace, ref.Name, port)
		dialled, _, _ := strings.Cut(p.target.Address, ":")
		p.problems = append(p.problems, b.deniedHost(path, dialled, p.serverName)...)
	}
	return p
}

// serviceTarget dials the full DNS name of a Service, with the final dot: a
// shorter name would be tried under each search domain of resolv.conf, and
// kubernetes.default.svc.svc.cluster.local belongs to the namespace svc.
func (b *builder) serviceTarget(namespace, name string, port int32) k8swatch.Target {
	host := name + "." + namespace + ".svc"
	domain := cmp.Or(b.options.ClusterDomain, DefaultClusterDomain)
	target := k8swatch.Target{
		Kind:      k8swatch.TargetService,
		Canonical: fmt.Sprintf("service:%s/%s:%d", namespace, name, port),
		Address:   net.JoinHostPort(host+"."+domain+".", strconv.Itoa(int(port))),
		Host:      host,
	}
	if port != v1.DefaultServicePort {
		target.Host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	return target
}

// servicePort returns the port to dial, 0 when it is not known.
func (b *builder) servicePort(namespace string, ref *v1.KubernetesService) (int32, []problem, []string) {
	asked := b.askedPort(namespace, ref)
	service, err := b.store.Service(namespace, ref.Name)
	if err != nil && !apierrors.IsNotFound(err) && b.carried.service == asked.id() {
		return asked.port, nil, []string{reference.GetFailed("Service", namespace, ref.Name, reference.Fault(err))}
	}
	b.carried.service = ""
	named := fmt.Sprintf("Service %s/%s ", namespace, ref.Name)
	refuse := func(reason, text string) []problem {
		return []problem{{reason: reason, path: "spec.service.KubernetesService", text: named + text}}
	}
	switch {
	case apierrors.IsNotFound(err):
		return asked.port, refuse(k8swatch.ReasonServiceNotFound, "does not exist"), nil
	case err != nil:
		return asked.port, refuse(k8swatch.ReasonServiceNotFound, "cannot be read (get): "+reference.Fault(err)), nil
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		// It would send the proxy wherever DNS says (API-6).
		return 0, refuse(k8swatch.ReasonInvalidSpec, "is of type ExternalName, which is not followed; use ExternalService"), nil
	}
	port, ok := findPort(service, asked)
	switch {
	case !ok && asked.portName != "":
		return asked.port, refuse(k8swatch.ReasonServiceNotFound, "has no TCP port named "+text.Quote(asked.portName, k8swatch.MaxQuoted)), nil
	case !ok:
		return asked.port, refuse(k8swatch.ReasonServiceNotFound, fmt.Sprintf("has no TCP port %d", asked.port)), nil
	}
	asked.port = port
	b.carried.port, b.carried.service = asked, asked.id()
	return port, nil, nil
}

// askedPort is what the object asks for; a named port has the number it had
// when the Service was last seen.
func (b *builder) askedPort(namespace string, ref *v1.KubernetesService) resolvedPort {
	asked := resolvedPort{namespace: namespace, name: ref.Name}
	if asked.portName = ptr.Deref(ref.PortName, ""); ref.Port != nil || asked.portName == "" {
		asked.port, asked.portName = ref.NumberOrDefault(), ""
		return asked
	}
	if last := b.carried.port; last.id() == asked.id() {
		asked.port = last.port
	}
	return asked
}

// id names what was asked for, without the port a name resolved to.
func (r resolvedPort) id() string {
	if r.portName != "" {
		return r.namespace + "/" + r.name + ":" + r.portName
	}
	return fmt.Sprintf("%s/%s:%d", r.namespace, r.name, r.port)
}

func findPort(service *corev1.Service, asked resolvedPort) (int32, bool) {
	for _, p := range service.Spec.Ports {
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			continue
		}
		if asked.portName != "" && p.Name == asked.portName {
			return p.Port, true
		}
		if asked.portName == "" && p.Port == asked.port {
			return p.Port, true
		}
	}
	// The name of a headless Service resolves to its endpoints, which listen
	// where they like.
	if asked.portName == "" && service.Spec.ClusterIP == corev1.ClusterIPNone {
		return asked.port, true
	}
	return 0, false
}

// parseTargetURL reads the URL of an apiserver and returns the target and the
// host without brackets. It repeats what admission demands, since an object may
// be older than the rules, and refuses path bases that two servers could read
// differently: the base goes onto the wire as it is written.
func parseTargetURL(raw string) (k8swatch.Target, string, error) {
	authority, base, err := splitHTTPS(raw)
	if err != nil {
		return k8swatch.Target{}, "", err
	}
	host, port, err := splitAuthority(authority)
	if err != nil {
		return k8swatch.Target{}, "", err
	}
	base = strings.TrimRight(base, "/")
	if err := checkBase(base); err != nil {
		return k8swatch.Target{}, "", err
	}
	target := k8swatch.Target{
		Kind:      k8swatch.TargetExternal,
		Canonical: "external:" + strings.TrimRight(raw, "/"),
		Address:   net.JoinHostPort(host, "443"),
		Host:      bracketed(host),
		BasePath:  base,
	}
	if port != "" {
		target.Address = net.JoinHostPort(host, port)
		target.Host = target.Address
	}
	return target, host, nil
}

func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// checkBase takes a path base without its trailing slash and refuses what two
// servers could read differently.
func checkBase(base string) error {
	if base == "" {
		return nil
	}
	decoded, err := decodePath(base)
	if err != nil {
		return err
	}
	for _, segment := range strings.Split(decoded[1:], "/") {
		switch segment {
		case "":
			return errURLEmpty
		case ".", "..":
			return errURLDots
		}
	}
	return nil
}

// validServerName accepts names that an apiserver's certificate can have. Some
// certificates have underscores, although host names must not.
func validServerName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	for _, label := range strings.Split(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool { return r == '~' || !isHostRune(r) }) {
			return false
		}
	}
	return true
}
