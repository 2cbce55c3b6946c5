{{- define "proxyauthk8s.caddyfile" -}}
{{- if .Values.caddyfile -}}
{{ .Values.caddyfile }}
{{- else -}}
{{ include "proxyauthk8s.globalOptions" . }}

{{ include "proxyauthk8s.sites" . }}

# /livez, /readyz and /metrics. Caddy would listen on every address anyway, and
# the kubelet asks on the pod's.
http://:9180 {
	proxyauth_health
}
{{ end -}}
{{- end -}}

{{/* The files of /etc/caddy, by name. The digit: the first line may begin with a space. */}}
{{- define "proxyauthk8s.files" -}}
{{ include "proxyauthk8s.isJSON" . | empty | ternary "Caddyfile" "caddy.json" }}: |2
  {{- include "proxyauthk8s.caddyfile" . | nindent 2 }}
{{- if and (eq .Values.tls.mode "acme") .Values.tls.acme.caRoot }}
acme-ca-root.pem: |
  {{- .Values.tls.acme.caRoot | trim | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "proxyauthk8s.globalOptions" -}}
{
	admin unix//run/proxyauth/admin.sock|0600
	persist_config off

	# On SIGTERM the listeners stay 5 s, then requests have 30 s to end.
	shutdown_delay 5s
	grace_period 30s

	log default {
		level {{ .Values.logLevel }}
		exclude proxyauth.audit
	}
	log audit {
		include proxyauth.audit
	}
{{- if eq .Values.tls.mode "secret" }}

	# Redirects would need port 80, which the pod may not listen on.
	auto_https disable_redirects
{{- else if eq .Values.tls.mode "acme" }}

	http_port 8080
	https_port 8443
	storage proxyauth {
		namespace {{ include "proxyauthk8s.storageNamespace" . }}
	}
{{- with .Values.tls.acme.email }}
	email {{ . }}
{{- end }}
{{- with .Values.tls.acme.ca }}
	acme_ca {{ . }}
{{- end }}
{{- if .Values.tls.acme.caRoot }}
	acme_ca_root /etc/caddy/acme-ca-root.pem
{{- end }}
{{- end }}

	servers {
		protocols {{ if eq .Values.tls.mode "off" }}h1 h2c{{ else }}h1 h2{{ end }}
		max_header_size 64KiB
		timeouts {
			read_header 10s
			idle 5m
		}
{{- with .Values.trustedProxies }}
		trusted_proxies static {{ join " " . }}
		trusted_proxies_strict
{{- end }}
	}

	proxyauth {
		kubernetes {
			leader_election {{ include "proxyauthk8s.lease" . }}
{{- with .Values.watchNamespaces }}
			watch_namespaces {{ join " " . }}
{{- end }}
{{- with .Values.objectSelector }}
			object_selector {{ . | quote }}
{{- end }}
		}
		allowed_modes {{ join " " .Values.upstreamAuth.allowedModes }}
{{- with .Values.audienceValidation }}
		audience_validation {{ . }}
{{- end }}
		impersonation {{ .Values.impersonation }}
{{- with .Values.deniedTargets }}
		denied_targets {{ join " " . }}
{{- end }}
{{- if not .Values.disableValidation }}
		disable_validation off
{{- end }}
{{- with .Values.referenceNamespaces }}
		reference_namespaces {{ join " " . }}
{{- end }}
{{- with .Values.probeInterval }}
		probe_interval {{ include "proxyauthk8s.duration" . }}
{{- end }}
{{- with .Values.tokenCacheTtl }}
		token_cache_ttl {{ include "proxyauthk8s.duration" . }}
{{- end }}
{{- with .Values.upstreamClientTtl }}
		upstream_client_ttl {{ include "proxyauthk8s.duration" . }}
{{- end }}
{{- with .Values.publicUrl }}
		public_url {{ . }}
{{- end }}
	}
}
{{- end -}}

{{/* proxyauth answers 404 for what is not a cluster, so it is its own catch-all. */}}
{{- define "proxyauthk8s.sites" -}}
{{- if eq .Values.tls.mode "secret" -}}
:8443 {
	tls {
		get_certificate proxyauth {{ include "proxyauthk8s.tlsSecret" . }}
	}
{{- include "proxyauthk8s.accessLog" . }}
	proxyauth
}
{{- else if eq .Values.tls.mode "acme" -}}
{{ include "proxyauthk8s.hosts" (list .Values.tls.acme.hosts .Values.publicUrl) | fromJsonArray | join ", " }} {
{{- include "proxyauthk8s.accessLog" . }}
	proxyauth
}

# A name of the site above as server name (SNI), and another Host: a 404 that
# kubectl can read. For another server name the TLS handshake fails.
:8443 {
	proxyauth
}
{{- else -}}
http://:8080 {
{{- include "proxyauthk8s.accessLog" . }}
	proxyauth
}
{{- end -}}
{{- end -}}

{{/* A duration, or whole seconds, which Helm reads as a float. */}}
{{- define "proxyauthk8s.duration" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ int64 . }}{{ end -}}
{{- end -}}

{{/* Caddy redacts Authorization by itself, but not these. */}}
{{- define "proxyauthk8s.accessLog" -}}
{{- if .Values.accessLog }}
	log {
		format filter {
			fields {
				request>headers>Sec-Websocket-Protocol delete
				request>headers>Cookie delete
				request>uri query {
					delete access_token
				}
			}
		}
	}
{{- end }}
{{- end -}}
