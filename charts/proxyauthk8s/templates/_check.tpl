{{/* What the schema cannot say. Rendering ends with the reason. */}}
{{- define "proxyauthk8s.check" -}}
{{- if .Values.portal.enabled -}}
{{- fail "portal.enabled: the portal is not supported by this version" -}}
{{- end -}}
{{- if eq (include "proxyauthk8s.lease" .) "off" -}}
{{- fail "fullnameOverride: off is no name for a Lease, since leader_election off makes every replica a leader: choose another" -}}
{{- end -}}
{{- range $key := list "probeInterval" "tokenCacheTtl" "upstreamClientTtl" -}}
{{- $value := get $.Values $key | default "" | toString -}}
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
{{- include "proxyauthk8s.checkAccess" . -}}
{{- include "proxyauthk8s.checkPods" . -}}
{{- end -}}

{{/* How users and Prometheus reach the pods. */}}
{{- define "proxyauthk8s.checkAccess" -}}
{{- $v := .Values -}}
{{- if ne $v.service.type "LoadBalancer" -}}
{{- range $key := list "loadBalancerIP" "loadBalancerClass" "loadBalancerSourceRanges" -}}
{{- if get $v.service $key -}}
{{- fail (printf "service.%s needs service.type LoadBalancer, which is %s" $key $v.service.type) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $v.service.type "ClusterIP" -}}
{{- range $key := list "nodePort" "externalTrafficPolicy" -}}
{{- if get $v.service $key -}}
{{- fail (printf "service.%s needs service.type NodePort or LoadBalancer" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.ingress.enabled (not (include "proxyauthk8s.hosts" (list $v.ingress.hosts $v.publicUrl) | fromJsonArray)) -}}
{{- fail "ingress.enabled needs ingress.hosts, or a publicUrl with one host" -}}
{{- end -}}
{{- if and $v.ingress.enabled $v.ingress.tls (ne $v.tls.mode "off") -}}
{{- fail "ingress.tls would have the controller end TLS, which needs tls.mode off" -}}
{{- end -}}
{{- if $v.gateway.enabled -}}
{{- if not $v.gateway.parentRefs -}}
{{- fail "gateway.enabled needs gateway.parentRefs" -}}
{{- end -}}
{{- if not (include "proxyauthk8s.hosts" (list $v.gateway.hostnames $v.publicUrl) | fromJsonArray) -}}
{{- fail "gateway.enabled needs gateway.hostnames, or a publicUrl with one host" -}}
{{- end -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled $v.podMonitor.enabled -}}
{{- fail "serviceMonitor.enabled and podMonitor.enabled: Prometheus would count everything twice" -}}
{{- end -}}
{{- end -}}

{{/* Accounts and numbers of pods. */}}
{{- define "proxyauthk8s.checkPods" -}}
{{- $v := .Values -}}
{{- if not (or $v.serviceAccount.create $v.serviceAccount.name) -}}
{{- fail "serviceAccount.create false needs serviceAccount.name: the account default, and with it every pod of the namespace, would get the rights of the proxy" -}}
{{- end -}}
{{- with $v.podDisruptionBudget -}}
{{- if and (toString .minAvailable | regexMatch "^[0-9]") (toString .maxUnavailable | regexMatch "^[0-9]") -}}
{{- fail "podDisruptionBudget: minAvailable and maxUnavailable exclude each other" -}}
{{- end -}}
{{- end -}}
{{- with $v.autoscaling -}}
{{- if .enabled -}}
{{- if lt (int .maxReplicas) (int .minReplicas) -}}
{{- fail "autoscaling.maxReplicas is less than autoscaling.minReplicas" -}}
{{- end -}}
{{- if not (or .targetCPUUtilizationPercentage .targetMemoryUtilizationPercentage .metrics) -}}
{{- fail "autoscaling.enabled needs a target, or metrics" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
