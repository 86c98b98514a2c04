{{/* What the schema cannot say in words that help. */}}
{{- define "assay.checks" -}}
{{- $database := .Values.database -}}
{{- if .Values.postgresql.enabled -}}
{{- if or $database.url $database.existingSecret -}}
{{- fail "database names a PostgreSQL and postgresql.enabled asks for another: set postgresql.enabled to false" -}}
{{- end -}}
{{- else -}}
{{- if not (or $database.url $database.existingSecret) -}}
{{- fail "which PostgreSQL? set database.existingSecret or database.url, or for a trial postgresql.enabled to true" -}}
{{- end -}}
{{- if not (or .Values.keys.admin .Values.keys.existingSecret) -}}
{{- fail "the server serves nobody without an API key: set keys.existingSecret or keys.admin" -}}
{{- end -}}
{{- end -}}
{{- range $what, $given := dict "database" (list $database.url $database.existingSecret) "hub" (list .Values.hub.token .Values.hub.existingSecret) "keys" (list (print .Values.keys.admin .Values.keys.metrics) .Values.keys.existingSecret) -}}
{{- if and (index $given 0) (index $given 1) -}}
{{- fail (printf "%s.existingSecret takes the place of the other secrets of %s: give one or the others" $what $what) -}}
{{- end -}}
{{- end -}}
{{- if and (or .Values.hub.token .Values.hub.existingSecret) (not .Values.hub.enabled) -}}
{{- fail "hub.token and hub.existingSecret are of use with hub.enabled alone" -}}
{{- end -}}
{{- include "assay.checkEnv" (list "server" .Values.server.env) -}}
{{- range $name, $_ := .Values.workerPools -}}
{{- $pool := include "assay.pool" (list $ $name) | fromYaml -}}
{{- $place := printf "workerPools.%s" $name -}}
{{- include "assay.checkEnv" (list $place $pool.env) -}}
{{- if gt (int $pool.autoscaling.minReplicas) (int $pool.autoscaling.maxReplicas) -}}
{{- fail (printf "%s.autoscaling: minReplicas is larger than maxReplicas" $place) -}}
{{- end -}}
{{- end -}}
{{- if and (include "assay.wantsMetricsKey" .) (not (or .Values.keys.metrics .Values.keys.existingSecret .Values.postgresql.enabled)) -}}
{{- fail "serviceMonitor and autoscaling ask for metrics, which takes an API key: set keys.metrics, or metrics-key in keys.existingSecret" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "under which name is the API published? set ingress.host" -}}
{{- end -}}
{{- range $name := list "admin" "metrics" -}}
{{- $key := index $.Values.keys $name -}}
{{- if and $key (not (regexMatch "^assay_([A-Za-z0-9]{4,64}_)?[A-Za-z0-9]{32,200}$" $key)) -}}
{{- fail (printf "keys.%s is no key: that is `assay_` and at least 32 letters or digits behind it" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Variables that others can read: (list place variables). */}}
{{- define "assay.checkEnv" -}}
{{- range $name, $_ := index . 1 -}}
{{- if or (eq $name "DATABASE_URL") (regexMatch "(TOKEN|KEY|PASSWORD|SECRET)$" $name) -}}
{{- fail (printf "%s.env.%s: secrets have settings of their own; env is for all to read" (index $ 0) $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
