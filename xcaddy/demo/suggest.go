package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// suggest says what to try next. The commands can be copied as they are.
func (d *demo) suggest() {
	cluster := filepath.Join(d.clusters(), "cluster.yaml")
	token := quoted(append([]string{d.self, "token"}, d.tokenFlags("alice")...)...)
	r := strings.NewReplacer(
		"%KUBECTL", quoted(d.kubectl), "%KUBECONFIG", quoted(d.kubeconfig()), "%CACHE", quoted(filepath.Join(d.home(), "cache")),
		"%ADMINCONFIG", quoted(d.apiserver.Kubeconfig), "%CADDY", quoted(d.caddy), "%ADMIN", d.admin,
		"%CA", quoted(d.proxyCA()), "%TOKEN", token, "%URL", d.url(), "%CLUSTERS", d.clusters(), "%CLUSTER", quoted(cluster),
		"%LOG", quoted(d.proxyLog()), "%HEALTH", d.health,
	)
	fmt.Fprint(d.out, r.Replace(suggestions))
}

const suggestions = `
================================================================================
It is up. In another terminal:

  export KUBECONFIG=%KUBECONFIG KUBECACHEDIR=%CACHE
  alias kubectl=%KUBECTL

  kubectl auth whoami
  kubectl --context elodie auth whoami
  kubectl get pods -A --watch
  kubectl -n demo create configmap mine --from-literal=a=b
  kubectl --as system:admin get pods -A      # Impersonate-* is ignored, with a warning

Give élodie a right, as the administrator of the apiserver, and see it:

  kubectl --kubeconfig %ADMINCONFIG create clusterrolebinding elodie --clusterrole=view --user=proxyauth:élodie
  kubectl --context elodie get pods -A

A fresh token of alice, and the proxy without kubectl:

  %TOKEN
  curl --cacert %CA -H "Authorization: Bearer $(%TOKEN)" %URL/version

The proxy follows the files in %CLUSTERS. Change one, and see it:

  sed -i 's/user_prefix: .*/user_prefix: "people:"/' %CLUSTER && sleep 1 && kubectl auth whoami
  sed -i 's/# proxy_group: .*/proxy_group: nobody/' %CLUSTER && sleep 1 && kubectl auth whoami
  %CADDY proxyauth status --address %ADMIN

What the proxy writes down about each request, and counts:

  grep proxyauth.audit %LOG | tail -n 3
  curl -s http://%HEALTH/metrics | grep ^proxyauth_

Ctrl-C ends everything and removes its files.
================================================================================
`

// quoted is a command line that a shell reads as these arguments.
func quoted(args ...string) string {
	out := make([]string, len(args))
	for i, arg := range args {
		if strings.ContainsFunc(arg, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@%+,", r) || r > 0x7f)
		}) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		out[i] = arg
	}
	return strings.Join(out, " ")
}
