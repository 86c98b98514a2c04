{{/*
Init containers that bring the schema up to this version's and store keys, one after the other; each may
run again. "assay.adminKey" is the last one: (list $ suffix), the suffix that of the Secrets.
*/}}
{{- define "assay.migrate" -}}
{{- $root := index . 0 -}}
- name: migrate
  {{- include "assay.serverImage" $root | nindent 2 }}
  args: [migrate, --log=json]
  env:
    {{- include "assay.databaseEnv" . | nindent 4 }}
  {{- include "assay.migrateLimits" $root | nindent 2 }}
{{- if include "assay.wantsMetricsKey" $root }}
{{ include "assay.key" (list $root (index . 1) "metrics" "read" "metrics") }}
{{- end }}
{{- end -}}

{{- define "assay.adminKey" -}}
{{ include "assay.key" (list (index . 0) (index . 1) "admin" "admin" "chart") }}
{{- end -}}

{{/* Stores a key of the Secret: (list $ suffix which scope name). */}}
{{- define "assay.key" -}}
{{- $root := index . 0 -}}
{{- $which := index . 2 -}}
{{- $variable := printf "ASSAY_%s_KEY" (upper $which) -}}
- name: {{ $which }}-key
  {{- include "assay.serverImage" $root | nindent 2 }}
  args:
    - keys
    - create
    - --project=default
    - --scope={{ index . 3 }}
    - --name={{ index . 4 }}
    - --from-env={{ $variable }}
    - --if-absent
  env:
    {{- include "assay.databaseEnv" . | nindent 4 }}
    {{- include "assay.secretEnv" (list $variable (include "assay.keysSecret" .) (printf "%s-key" $which)) | nindent 4 }}
  {{- include "assay.migrateLimits" $root | nindent 2 }}
{{- end -}}

{{- define "assay.serverImage" -}}
{{- $image := .Values.images.server -}}
image: {{ include "assay.image" (list $image.repository (default .Chart.AppVersion $image.tag)) }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end -}}

{{- define "assay.migrateLimits" -}}
resources:
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 256Mi}
{{ include "assay.containerSecurity" . }}
{{- end -}}
