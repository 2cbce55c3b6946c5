{{/* What the schema cannot say. Rendering ends with the reason. */}}
{{- define "proxyauthk8s.check" -}}
{{- if .Values.portal.enabled -}}
{{- fail "portal.enabled: the portal is not supported by this version" -}}
{{- end -}}
{{- range $key := list "probeInterval" "tokenCacheTtl" "upstreamClientTtl" -}}
{{- $value := get $.Values $key | toString -}}
{{- if and $value (not (regexMatch "[1-9]" $value)) -}}
{{- fail (printf "%s: %s is not longer than zero" $key $value) -}}
{{- end -}}
{{- end -}}
{{- $tls := .Values.tls -}}
{{- if eq $tls.mode "secret" -}}
{{- $secret := include "proxyauthk8s.tlsSecret" . -}}
{{- if or (hasPrefix "proxyauth-frontproxy-" $secret) (hasPrefix "proxyauth-agent-" $secret) -}}
{{- fail (printf "tls.secretName: %s is a name of the product's own Secrets, which the proxy does not serve with: choose another" $secret) -}}
{{- end -}}
{{- end -}}
{{- if $tls.certManager.enabled -}}
{{- if ne $tls.mode "secret" -}}
{{- fail (printf "tls.certManager.enabled needs tls.mode secret, which is %s" $tls.mode) -}}
{{- end -}}
{{- if not $tls.certManager.issuerRef.name -}}
{{- fail "tls.certManager.enabled needs tls.certManager.issuerRef.name" -}}
{{- end -}}
{{- if not (include "proxyauthk8s.hosts" (list $tls.certManager.dnsNames .Values.publicUrl) | fromJsonArray) -}}
{{- fail "tls.certManager.enabled needs tls.certManager.dnsNames, or a publicUrl with one host" -}}
{{- end -}}
{{- end -}}
{{- if eq $tls.mode "acme" -}}
{{- if not (include "proxyauthk8s.hosts" (list $tls.acme.hosts .Values.publicUrl) | fromJsonArray) -}}
{{- fail "tls.mode acme needs tls.acme.hosts, or a publicUrl with one host" -}}
{{- end -}}
{{- if and $tls.acme.caRoot (not $tls.acme.ca) -}}
{{- fail "tls.acme.caRoot needs tls.acme.ca: Caddy's own authorities have public roots" -}}
{{- end -}}
{{- if eq (include "proxyauthk8s.storageNamespace" .) .Release.Namespace -}}
{{- fail "tls.acme.storageNamespace must not be the namespace of the release: the proxy writes no Secret there" -}}
{{- end -}}
{{- end -}}
{{- end -}}
