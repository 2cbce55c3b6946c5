{{/* Names. A release that bears the chart's name does not repeat it. */}}
{{- define "proxyauthk8s.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "proxyauthk8s.fullname" -}}
{{- $name := include "proxyauthk8s.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* For objects outside the release's namespace, which other releases may share. */}}
{{- define "proxyauthk8s.wideName" -}}
{{- printf "%s-%s" .Release.Namespace (include "proxyauthk8s.fullname" .) -}}
{{- end -}}

{{- define "proxyauthk8s.serviceAccount" -}}
{{- default (include "proxyauthk8s.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "proxyauthk8s.tlsSecret" -}}
{{- default (printf "%s-tls" (include "proxyauthk8s.fullname" .)) .Values.tls.secretName -}}
{{- end -}}

{{- define "proxyauthk8s.storageNamespace" -}}
{{- default (printf "%s-caddy" .Release.Namespace) .Values.tls.acme.storageNamespace -}}
{{- end -}}

{{- define "proxyauthk8s.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "proxyauthk8s.selectorLabels" -}}
app.kubernetes.io/name: {{ include "proxyauthk8s.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "proxyauthk8s.labels" -}}
{{ include "proxyauthk8s.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The subject of every binding. */}}
{{- define "proxyauthk8s.subjects" -}}
- kind: ServiceAccount
  name: {{ include "proxyauthk8s.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* What the option is in the pod: the value, else the environment's, which is not known where it comes from elsewhere. */}}
{{- define "proxyauthk8s.audienceValidation" -}}
{{- $effective := default "enforce" .Values.audienceValidation -}}
{{- if not .Values.audienceValidation -}}
{{- range .Values.extraEnv -}}
{{- if and (eq .name "OIDC_AUDIENCE_VALIDATION") .value -}}
{{- $effective = .value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $effective -}}
{{- end -}}

{{/* Hosts that the proxy's own certificate is for, as a JSON list: those given, else the one of publicUrl. */}}
{{- define "proxyauthk8s.hosts" -}}
{{- $given := index . 0 -}}
{{- $host := regexReplaceAll "^https://([^:/]*).*$" (index . 1) "${1}" -}}
{{- if $given -}}
{{- toJson $given -}}
{{- else if and $host (not (contains "{" $host)) -}}
{{- list $host | toJson -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{/* Not empty when .Values.caddyfile is a configuration in Caddy's JSON. */}}
{{- define "proxyauthk8s.isJSON" -}}
{{- if .Values.caddyfile -}}
{{- if not (hasKey (fromJson .Values.caddyfile) "Error") -}}true{{- end -}}
{{- end -}}
{{- end }}
