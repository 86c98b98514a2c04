{{/* Name of all objects of the release, with suffixes. */}}
{{- define "assay.fullname" -}}
{{- $default := contains "assay" .Release.Name | ternary .Release.Name (printf "%s-assay" .Release.Name) -}}
{{- $name := default $default .Values.fullnameOverride -}}
{{- if gt (len $name) 28 -}}
{{- fail (printf "%q is too long for the names of pods: set fullnameOverride to at most 28 characters" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Labels that select: (list $ component). */}}
{{- define "assay.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: assay
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object: (list $ component). */}}
{{- define "assay.labels" -}}
{{- $root := index . 0 -}}
{{ include "assay.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: assay
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Metadata of an object: (list $ component suffix). */}}
{{- define "assay.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "assay.fullname" $root }}{{ index . 2 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "assay.labels" (list $root (index . 1)) | nindent 2 }}
{{- end -}}

{{/* An image: (list repository tag). */}}
{{- define "assay.image" -}}
{{ printf "%s:%s" (index . 0) (index . 1) | quote }}
{{- end -}}

{{/* What all pods have in common: (list $ component userId). */}}
{{- define "assay.pod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ include "assay.fullname" $root }}-{{ index . 1 }}
automountServiceAccountToken: false
# The variables that links bring are called as settings are: ASSAY_..
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ int64 (index . 2) }}
  runAsGroup: {{ int64 (index . 2) }}
  fsGroup: {{ int64 (index . 2) }}
  # Else each start walks through all checkpoints.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "assay.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where a pod may run: settings of the server or of a pool. */}}
{{- define "assay.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* A variable out of a Secret: (list variable secret key). */}}
{{- define "assay.secretEnv" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef: {name: {{ index . 1 }}, key: {{ index . 2 }}}
{{- end -}}

{{/* The database's URL: (list $ suffix); the suffix is that of the Secrets of a hook. */}}
{{- define "assay.databaseEnv" -}}
{{- $root := index . 0 -}}
{{- $database := $root.Values.database -}}
{{- $fullname := include "assay.fullname" $root -}}
{{- if $root.Values.postgresql.enabled -}}
{{ include "assay.secretEnv" (list "DATABASE_URL" (printf "%s-postgres" $fullname) "url") }}
{{- else if $database.existingSecret -}}
{{ include "assay.secretEnv" (list "DATABASE_URL" $database.existingSecret $database.existingSecretKey) }}
{{- else -}}
{{ include "assay.secretEnv" (list "DATABASE_URL" (printf "%s-database%s" $fullname (index . 1)) "url") }}
{{- end -}}
{{- end -}}

{{/* Variables of the hub, of server and workers. */}}
{{- define "assay.hubEnv" -}}
{{- if .Values.hub.enabled -}}
{{- with .Values.hub.endpoint }}
- {name: HF_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- if .Values.hub.existingSecret }}
{{ include "assay.secretEnv" (list "HF_TOKEN" .Values.hub.existingSecret .Values.hub.existingSecretKey) }}
{{- else if .Values.hub.token }}
{{ include "assay.secretEnv" (list "HF_TOKEN" (printf "%s-hub" (include "assay.fullname" .)) "token") }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Variables that are set by name. */}}
{{- define "assay.env" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{/* Name of the Secret of API keys: (list $ suffix). */}}
{{- define "assay.keysSecret" -}}
{{- $root := index . 0 -}}
{{- default (printf "%s-keys%s" (include "assay.fullname" $root) (index . 1)) $root.Values.keys.existingSecret -}}
{{- end -}}

{{/* Whether something asks for metrics, and so a key for it is needed. */}}
{{- define "assay.wantsMetricsKey" -}}
{{- $wants := .Values.metrics.serviceMonitor.enabled -}}
{{- range $name, $_ := .Values.workerPools -}}
{{- $pool := include "assay.pool" (list $ $name) | fromYaml -}}
{{- $wants = or $wants $pool.autoscaling.enabled -}}
{{- end -}}
{{- $wants | ternary "yes" "" -}}
{{- end -}}

{{/*
Settings of a pool as YAML: those of workerDefaults, but for what it sets itself: (list $ name). Own
code, because mergeOverwrite takes false and 0 for unset.
*/}}
{{- define "assay.pool" -}}
{{- $root := index . 0 -}}
{{- $own := index $root.Values.workerPools (index . 1) | default dict -}}
{{- $all := dict -}}
{{- range $key, $default := $root.Values.workerDefaults -}}
{{- if not (hasKey $own $key) -}}
{{- $_ := set $all $key $default -}}
{{- else if kindIs "map" $default -}}
{{- $merged := deepCopy $default -}}
{{- range $inner, $value := index $own $key -}}
{{- $_ := set $merged $inner $value -}}
{{- end -}}
{{- $_ := set $all $key $merged -}}
{{- else -}}
{{- $_ := set $all $key (index $own $key) -}}
{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* Name of the claim for models, data or state: (list $ which). */}}
{{- define "assay.claim" -}}
{{- $root := index . 0 -}}
{{- $volume := index $root.Values.storage (index . 1) -}}
{{- default (printf "%s-%s" (include "assay.fullname" $root) (index . 1)) $volume.existingClaim -}}
{{- end -}}

{{/* Annotations of what comes before a release, by weight. */}}
{{- define "assay.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* A new API key: (its form is the server's). */}}
{{- define "assay.newKey" -}}
assay_{{ randAlphaNum 43 }}
{{- end -}}
