{{/* Rights as CHART-1 has them. No rule here may write a ProxyKubeApi. */}}

{{/* On what is watched: everywhere, or in watchNamespaces. */}}
{{- define "proxyauthk8s.rules.watched" -}}
- apiGroups: [weebo.si.rs]
  resources: [proxykubeapis]
  verbs: [get, list, watch]
- apiGroups: [weebo.si.rs]
  resources: [proxykubeapis/status]
  verbs: [update, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* On what objects refer to: everywhere, or in rbac.secretNamespaces. */}}
{{- define "proxyauthk8s.rules.references" -}}
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [get]
{{- end -}}

{{/*
In the proxy's own namespace. A name cannot limit create. The Lease that a
Caddyfile of the user's own names is not known here.
*/}}
{{- define "proxyauthk8s.rules.own" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, update]
  {{- if not .Values.caddyfile }}
  resourceNames: [{{ include "proxyauthk8s.lease" . | quote }}]
  {{- end }}
{{- end -}}

{{/* In the namespace of Caddy's storage, with tls.mode acme. */}}
{{- define "proxyauthk8s.rules.storage" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, create, patch, delete]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update, delete]
{{- end -}}

{{/* A Role or ClusterRole and its binding: (dict "root" . "namespace" ns or "" "name" name "rules" template). */}}
{{- define "proxyauthk8s.grant" -}}
{{- $prefix := ternary "" "Cluster" (ne .namespace "") -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}Role
metadata:
  {{- include "proxyauthk8s.metadata" . | nindent 2 }}
rules:
{{ include .rules .root }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}RoleBinding
metadata:
  {{- include "proxyauthk8s.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $prefix }}Role
  name: {{ .name | quote }}
subjects:
{{ include "proxyauthk8s.subjects" .root }}
{{- end -}}
