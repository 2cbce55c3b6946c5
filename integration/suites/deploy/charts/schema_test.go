package charts

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each of these ends rendering with a message that names what is wrong.
func TestRefusedValues(t *testing.T) {
	t.Parallel()
	acme := []string{"tls.mode=acme", "publicUrl=https://k8s.example.com"}
	issued := []string{"tls.certManager.enabled=true", "publicUrl=https://k8s.example.com"}
	for name, c := range map[string]struct {
		set     []string
		message string
	}{
		"unknown key":                {[]string{"replica=2"}, "'replica' not allowed"},
		"unknown key inside":         {[]string{"upstreamAuth.allowedMode=FrontProxy"}, "'allowedMode' not allowed"},
		"unknown key deep inside":    {[]string{"tls.certManager.issuerRef.nam=x"}, "'nam' not allowed"},
		"no Passthrough":             {[]string{"upstreamAuth.allowedModes={FrontProxy}"}, "/upstreamAuth/allowedModes"},
		"unknown mode":               {[]string{"upstreamAuth.allowedModes={Passthrough,Frontproxy}"}, "/upstreamAuth/allowedModes"},
		"unknown audience setting":   {[]string{"audienceValidation=on"}, "/audienceValidation"},
		"unknown impersonation":      {[]string{"impersonation=allow"}, "/impersonation"},
		"target of the Caddyfile":    {[]string{"deniedTargets={10.0.0.0/8 x}"}, "/deniedTargets"},
		"validation in words":        {[]string{"disableValidation=off"}, "/disableValidation"},
		"no replica":                 {[]string{"replicas=0"}, "/replicas"},
		"root":                       {[]string{"runAsUser=0"}, "/runAsUser"},
		"namespace with a space":     {[]string{"watchNamespaces={a b}"}, "/watchNamespaces"},
		"namespace of the Caddyfile": {[]string{"referenceNamespaces={a\n}"}, "/referenceNamespaces"},
		"plain public URL":           {[]string{"publicUrl=http://k8s.example.com"}, "/publicUrl"},
		"environment in a URL":       {[]string{"publicUrl=https://{$HOST}"}, "/publicUrl"},
		"TLS mode":                   {[]string{"tls.mode=on"}, "/tls/mode"},
		"portal":                     {[]string{"portal.enabled=true"}, "the portal is not supported by this version"},
		"acme without a host":        {[]string{"tls.mode=acme"}, "tls.mode acme needs tls.acme.hosts, or a publicUrl with one host"},
		"acme with a template":       {[]string{"tls.mode=acme", "publicUrl=https://{name}.example.com"}, "tls.mode acme needs tls.acme.hosts"},
		"acme with a wildcard":       {append(acme, "tls.acme.hosts={*.example.com}"), "/tls/acme/hosts"},
		"acme in its own namespace":  {append(acme, "tls.acme.storageNamespace=proxyauth"), "must not be the namespace of the release"},
		"root without its CA":        {append(acme, "tls.acme.caRoot=-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----"), "tls.acme.caRoot needs tls.acme.ca"},
		"root that is no PEM":        {append(acme, "tls.acme.caRoot=/etc/ca.pem"), "/tls/acme/caRoot"},
		"probes without a pause":     {[]string{"probeInterval=0s"}, "probeInterval: 0s is not longer than zero"},
		"zero in all its units":      {[]string{"upstreamClientTtl=0h0.0s"}, "upstreamClientTtl: 0h0.0s is not longer than zero"},
		"no time for answers":        {[]string{"tokenCacheTtl=0"}, "/tokenCacheTtl"},
		"zero seconds":               {[]string{"upstreamClientTtl=0"}, "/upstreamClientTtl"},
		"serving as a front proxy":   {[]string{"tls.secretName=proxyauth-frontproxy-x"}, "tls.secretName: proxyauth-frontproxy-x is a name of the product's own Secrets"},
		"serving as an agent":        {[]string{"tls.secretName=proxyauth-agent-x"}, "tls.secretName: proxyauth-agent-x is a name of the product's own Secrets"},
		"serving as a chart's name":  {[]string{"fullnameOverride=proxyauth-agent"}, "tls.secretName: proxyauth-agent-tls is a name"},
		"issuer without a name":      {issued, "tls.certManager.enabled needs tls.certManager.issuerRef.name"},
		"issuer without a host":      {[]string{"tls.certManager.enabled=true", "tls.certManager.issuerRef.name=x"}, "needs tls.certManager.dnsNames"},
		"issuer and acme":            {append(issued, "tls.mode=acme"), "needs tls.mode secret"},
		"off as YAML reads it":       {[]string{"tls.mode=false"}, "/tls/mode"},
		"everyone a leader":          {[]string{"fullnameOverride=off"}, "off is no name for a Lease"},
		"rights for every pod":       {[]string{"serviceAccount.create=false"}, "serviceAccount.create false needs serviceAccount.name"},
		"two budgets":                {[]string{"podDisruptionBudget.minAvailable=1", "podDisruptionBudget.maxUnavailable=0"}, "exclude each other"},
		"budget in words":            {[]string{"podDisruptionBudget.minAvailable=one"}, "/podDisruptionBudget/minAvailable"},
		"less at most than at least": {[]string{"autoscaling.enabled=true", "autoscaling.maxReplicas=1"}, "autoscaling.maxReplicas is less"},
		"scaling by nothing":         {[]string{"autoscaling.enabled=true", "autoscaling.targetCPUUtilizationPercentage=0"}, "autoscaling.enabled needs a target"},
		"ingress for no host":        {[]string{"ingress.enabled=true"}, "ingress.enabled needs ingress.hosts"},
		"ingress that ends TLS":      {[]string{"ingress.enabled=true", "ingress.hosts={a.example.com}", "ingress.tls[0].secretName=a"}, "ingress.tls would have the controller end TLS"},
		"route without a gateway":    {[]string{"gateway.enabled=true", "publicUrl=https://k8s.example.com"}, "gateway.enabled needs gateway.parentRefs"},
		"route for no host":          {[]string{"gateway.enabled=true", "gateway.parentRefs[0].name=edge"}, "gateway.enabled needs gateway.hostnames"},
		"counted twice":              {[]string{"serviceMonitor.enabled=true", "podMonitor.enabled=true"}, "Prometheus would count everything twice"},
		"class of no load balancer":  {[]string{"service.loadBalancerClass=x"}, "service.loadBalancerClass needs service.type LoadBalancer"},
		"node port of no node":       {[]string{"service.nodePort=30443"}, "service.nodePort needs service.type NodePort"},
		"label that is a number":     {[]string{"commonLabels.a=1"}, "/commonLabels/a"},
		"unknown strategy":           {[]string{"updateStrategy.type=OnDelete"}, "/updateStrategy/type"},
		"another probe":              {[]string{"livenessProbe.exec.command={true}"}, "'exec' not allowed"},
		"limit that is null":         {[]string{"networkPolicy.egress=null"}, "missing property 'egress'"},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			stdout, stderr, code := template(t, release, namespace, chart(t), args...)
			if code == 0 || !strings.Contains(stderr, c.message) {
				t.Errorf("exit code %d, want a message with %q\n%s%s", code, c.message, stdout, stderr)
			}
		})
	}
	_, stderr, code := newHelm(t, os.DevNull).run(t, "template", release, chart(t), "--kube-version", "1.28.15")
	if code == 0 || !strings.Contains(stderr, "kubeVersion: >=1.29.0-0") {
		t.Errorf("the chart takes an older hub: %s", stderr)
	}
	_, stderr, code = template(t, release, namespace, crdsChart(t), "--set", "keep=false")
	if code == 0 || !strings.Contains(stderr, "'keep' not allowed") {
		t.Errorf("the chart of the CRD takes an unknown value: %s", stderr)
	}
}

// schema is the part of a JSON schema that is looked at.
type schema struct {
	Description          string
	Type                 any
	AdditionalProperties json.RawMessage
	Required             []string
	Properties           map[string]*schema
}

// Every value has a default and a description, and no object of the chart's own
// takes unknown keys. TestReadme has the table of them.
func TestSchema(t *testing.T) {
	t.Parallel()
	values, root := readValues(t)
	delete(root.Properties, "global") // belongs to Helm

	var walk func(path string, s *schema, value any)
	walk = func(path string, s *schema, value any) {
		if s.Description == "" {
			t.Errorf("%s has no description", path)
		}
		if s.Properties == nil {
			return
		}
		if string(s.AdditionalProperties) != "false" {
			t.Errorf("%s takes unknown keys", path)
		}
		defaults, _ := value.(map[string]any)
		names := slices.Sorted(maps.Keys(s.Properties))
		if diff := cmp.Diff(names, slices.Sorted(maps.Keys(defaults))); diff != "" {
			t.Errorf("%s: the schema and values.yaml differ: %s", path, diff)
		}
		for _, name := range names {
			walk(strings.TrimPrefix(path+"."+name, "."), s.Properties[name], defaults[name])
		}
	}
	walk("", root, values)
}
