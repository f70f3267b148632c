{{/* Names and labels of all objects, and the checks of required values. */}}

{{- define "fireteam.name" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) }}
{{- $name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "fireteam.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fireteam.labels" -}}
{{ include "fireteam.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "fireteam.scheme" -}}
{{ if .Values.tls.secret }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{- define "fireteam.check" -}}
{{- if and .Values.tls.secret .Values.plaintext.trustedProxies }}
{{- fail "tls.secret and plaintext.trustedProxies are both set; use one: the server ends TLS, or a load balancer does" }}
{{- end }}
{{- if not (or .Values.tls.secret .Values.plaintext.trustedProxies) }}
{{- fail "tls.secret is missing; name a secret of type kubernetes.io/tls, or set plaintext.trustedProxies where a load balancer ends TLS" }}
{{- end }}
{{- if and .Values.tls.clientCertificates (not .Values.tls.secret) }}
{{- fail "tls.clientCertificates needs tls.secret, with the key ca.crt" }}
{{- end }}
{{- end }}
