{{/* The chart's name, which in a subchart is its alias: that one may have capitals and underscores. */}}
{{- define "proxyauthk8s.name" -}}
{{- default (.Chart.Name | lower | replace "_" "-") .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/*
Names of objects. A release that has the chart's name does not repeat it. The
name of a Service begins with a letter and has no dot; a release's need not.
*/}}
{{- define "proxyauthk8s.fullname" -}}
{{- $name := include "proxyauthk8s.name" . -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if regexMatch "^[0-9]" $release -}}
{{- printf "%s-%s" $name $release | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name $release -}}
{{- $release | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" $release $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/*
For Roles outside the release's namespace, and for ClusterRoles. No namespace
and no full name has a colon, so that no two releases make the same name of
theirs, as a-b with c and a with b-c would with a hyphen.
*/}}
{{- define "proxyauthk8s.wideName" -}}
{{- printf "%s:%s" .Release.Namespace (include "proxyauthk8s.fullname" .) -}}
{{- end -}}

{{/* The Lease of the leader election: a release of its own elects a leader of its own. */}}
{{- define "proxyauthk8s.lease" -}}
{{- include "proxyauthk8s.fullname" . -}}
{{- end -}}

{{- define "proxyauthk8s.serviceAccount" -}}
{{- default (include "proxyauthk8s.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "proxyauthk8s.tlsSecret" -}}
{{- default (printf "%s-tls" (include "proxyauthk8s.fullname" .)) .Values.tls.secretName -}}
{{- end -}}

{{/*
The namespace of Caddy's storage. A name of a namespace has nothing that could
stand between two names, as the colon above: a hash keeps them apart.
*/}}
{{- define "proxyauthk8s.storageNamespace" -}}
{{- $full := include "proxyauthk8s.fullname" . -}}
{{- $short := printf "%s-caddy" .Release.Namespace -}}
{{- if .Values.tls.acme.storageNamespace -}}
{{- .Values.tls.acme.storageNamespace -}}
{{- else if and (eq $full "proxyauthk8s") (le (len $short) 63) -}}
{{- $short -}}
{{- else -}}
{{- $start := printf "%s-%s" .Release.Namespace $full | trunc 48 | trimSuffix "-" -}}
{{- printf "%s-caddy-%s" $start (printf "%s/%s" .Release.Namespace $full | sha256sum | trunc 8) -}}
{{- end -}}
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
app.kubernetes.io/name: {{ include "proxyauthk8s.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels, of which the chart's own win over those of one object, and these over commonLabels: (dict "root" . "own" map "labels" map). */}}
{{- define "proxyauthk8s.labels" -}}
{{- $labels := dict
  "app.kubernetes.io/name" (include "proxyauthk8s.name" .root)
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63)
-}}
{{- merge $labels (.own | default dict) (.labels | default dict) (.root.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{/* What stands below metadata: (dict "root" . "name" name "namespace" ns, empty for none, "own" labels "labels" labels "annotations" map). */}}
{{- define "proxyauthk8s.metadata" -}}
name: {{ .name | quote }}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "proxyauthk8s.labels" . | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The subject of every binding. */}}
{{- define "proxyauthk8s.subjects" -}}
- kind: ServiceAccount
  name: {{ include "proxyauthk8s.serviceAccount" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
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

{{/* Hosts, as a JSON list: those given, else the one of publicUrl: (list given publicUrl). */}}
{{- define "proxyauthk8s.hosts" -}}
{{- $given := index . 0 -}}
{{- $host := regexReplaceAll "^https://([^:/]*).*$" (index . 1 | default "") "${1}" -}}
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
{{- end -}}

{{/* Name and number of the port of the Service that users reach. */}}
{{- define "proxyauthk8s.portName" -}}
{{- ternary "http" "https" (eq .Values.tls.mode "off") -}}
{{- end -}}

{{- define "proxyauthk8s.portNumber" -}}
{{- .Values.service.port | default (ternary 80 443 (eq .Values.tls.mode "off")) | int -}}
{{- end -}}

{{/* Times of a probe. */}}
{{- define "proxyauthk8s.times" -}}
{{- range $key := list "initialDelaySeconds" "periodSeconds" "timeoutSeconds" "failureThreshold" }}
{{ $key }}: {{ get $ $key | int }}
{{- end }}
{{- end -}}

{{/* A number or a percentage, of which Helm reads the first as a float. */}}
{{- define "proxyauthk8s.count" -}}
{{- if kindIs "string" . }}{{ . | quote }}{{ else }}{{ int . }}{{ end -}}
{{- end }}
