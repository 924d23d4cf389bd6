{{- define "tigertally.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tigertally.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "tigertally.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "tigertally.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* What never changes of a release: a Deployment's selector cannot be changed. */}}
{{- define "tigertally.selector" -}}
app.kubernetes.io/name: {{ include "tigertally.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tigertally.labels" -}}
{{ include "tigertally.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "tigertally.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "tigertally.many" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) }}yes{{ end }}
{{- end }}

{{/* What would start and be wrong, or not start at all. */}}
{{- define "tigertally.check" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is needed: no image is published yet; build one and push it to a registry of yours" }}
{{- end }}
{{- if and (include "tigertally.many" .) (ne .Values.store.kind "redis") }}
{{- fail (printf "store.kind = %s is of one replica: several would each decide by themselves. Set store.kind = redis" .Values.store.kind) }}
{{- end }}
{{- if and (eq .Values.store.kind "redis") (not .Values.store.existingSecret) }}
{{- fail "store.kind = redis needs store.existingSecret: a secret with Redis's URL under `url`" }}
{{- end }}
{{- if not .Values.admin.existingSecret }}
{{- fail "admin.existingSecret is needed: a secret with the admin port's token under `token`" }}
{{- end }}
{{- if and (eq .Values.auth.mode "none") (not .Values.auth.insecure) }}
{{- fail "auth.mode = none asks nobody who they are. Set auth.mode, or auth.insecure = true if the network keeps others out" }}
{{- end }}
{{- if and (eq .Values.auth.mode "keys") (not .Values.auth.existingSecret) }}
{{- fail "auth.mode = keys needs auth.existingSecret: a secret with the keys file under `keys.toml`" }}
{{- end }}
{{- end }}
