{{/* What one endpoint of a ServiceMonitor or a PodMonitor has beside its port. */}}
{{- define "proxyauthk8s.endpoint" -}}
path: /metrics
interval: {{ .interval | quote }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . | quote }}
{{- end }}
honorLabels: {{ .honorLabels }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
The alerts. Clusters are told apart by the labels namespace and cluster, which
need honorLabels.
*/}}
{{- define "proxyauthk8s.alerts" -}}
- alert: ProxyAuthAbsent
  expr: absent(proxyauth_request_duration_seconds_count)
  for: 10m
  labels: {severity: critical}
  annotations:
    summary: No replica of the proxy is scraped.
    description: Prometheus has no metric of the proxy. No user reaches a cluster if no replica runs.
- alert: ProxyAuthUpstreamNotTrusted
  expr: max by (namespace, cluster, trust) (proxyauth_upstream_trust{trust=~"Rejected|NotHonoured"}) == 1
  for: 5m
  labels: {severity: critical}
  annotations:
    summary: 'The apiserver of {{ "{{ $labels.namespace }}/{{ $labels.cluster }}" }} does not honour the proxy.'
    description: 'The last probe ended with {{ "{{ $labels.trust }}" }}: requests of users are refused. The status of the ProxyKubeApi has the reason.'
- alert: ProxyAuthUpstreamRejects
  expr: sum by (mode) (rate(proxyauth_upstream_rejected_total[5m])) > 0
  for: 5m
  labels: {severity: warning}
  annotations:
    summary: 'An apiserver in mode {{ "{{ $labels.mode }}" }} refuses the certificate of the proxy.'
    description: 'Users get {{ "{{ $value | humanize }}" }} answers a second with status 502, "does not trust this proxy". The audit log names the cluster.'
- alert: ProxyAuthClientCertExpiring
  expr: min by (namespace, cluster) (proxyauth_client_cert_expiry_seconds) < {{ int64 .Values.prometheusRule.clientCertExpirySeconds }}
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: 'The client certificate for {{ "{{ $labels.namespace }}/{{ $labels.cluster }}" }} expires in {{ "{{ $value | humanizeDuration }}" }}.'
    description: It was not renewed in time. Once it has expired, requests to the cluster are refused.
- alert: ProxyAuthServerErrors
  expr: |-
    sum by (namespace, cluster) (rate(proxyauth_requests_total{code=~"5.."}[5m]))
      / sum by (namespace, cluster) (rate(proxyauth_requests_total[5m])) > 0.05
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: '{{ "{{ $value | humanizePercentage }}" }} of the requests to {{ "{{ $labels.namespace }}/{{ $labels.cluster }}" }} end with a status of 500 or above.'
    description: The audit log has the reason of each.
- alert: ProxyAuthIdentityProviderUnavailable
  expr: sum by (method) (rate(proxyauth_authentication_total{result="unavailable"}[5m])) > 0
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: 'Authentication by {{ "{{ $labels.method }}" }} fails because the identity provider, or the apiserver, is not there to be asked.'
    description: Users whose token is not in the cache get status 503.
- alert: ProxyAuthTokenExchangeFailing
  expr: sum by (result) (rate(proxyauth_token_exchange_total{result=~"unavailable|invalid"}[5m])) > 0
  for: 10m
  labels: {severity: warning}
  annotations:
    summary: 'Token exchanges end with {{ "{{ $labels.result }}" }}.'
    description: The identity provider is not there, or gives tokens that the cluster does not accept.
{{- end -}}
