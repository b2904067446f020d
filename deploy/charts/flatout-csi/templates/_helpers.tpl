{{/* Names begin with the release's. */}}
{{- define "flatout-csi.name" -}}
{{ .Release.Name | trunc 42 | trimSuffix "-" }}
{{- end }}

{{/* Labels of a part: (list . "node") */}}
{{- define "flatout-csi.selector" -}}
app.kubernetes.io/name: flatout-csi
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "flatout-csi.labels" -}}
{{- $root := index . 0 }}
{{- include "flatout-csi.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end }}

{{- define "flatout-csi.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "flatout-csi.folder" -}}
{{ .Values.folder | default (printf "/var/lib/%s" (include "flatout-csi.name" .)) }}
{{- end }}

{{/* The number of MiB of 4Gi or 256Mi. */}}
{{- define "flatout-csi.mib" -}}
{{- if hasSuffix "Gi" . }}{{ mul (trimSuffix "Gi" . | int64) 1024 }}{{ else }}{{ trimSuffix "Mi" . | int64 }}{{ end }}
{{- end }}

{{/* Where the pods on nodes run. */}}
{{- define "flatout-csi.on-nodes" -}}
priorityClassName: {{ .Values.priorityClassName }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The user of the engine and the controller, who may do nothing in particular: the plugin knows it by this number. */}}
{{- define "flatout-csi.nobody" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "flatout-csi.unprivileged" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "flatout-csi.alibaba-flags" -}}
{{- with .Values.alibaba.accountId }}
- --alibaba-account={{ . }}
{{- end }}
{{- with .Values.alibaba.clusterId }}
- --alibaba-cluster={{ . }}
{{- end }}
{{- end }}

{{/* The driver's own identity, for the engine and the controller: variables, the mount of tokens, the volume of tokens. */}}
{{- define "flatout-csi.identity-env" -}}
{{- if .Values.alibaba.rrsa }}
- name: ALIBABA_CLOUD_OIDC_TOKEN_FILE
  value: /var/run/secrets/flatout/alibaba
{{- end }}
{{- with .Values.alibaba.roleName }}
- name: ALIBABA_CLOUD_ROLE_ARN
  value: acs:ram::{{ $.Values.alibaba.accountId }}:role/{{ . }}
- name: ALIBABA_CLOUD_OIDC_PROVIDER_ARN
  value: acs:ram::{{ $.Values.alibaba.accountId }}:oidc-provider/ack-rrsa-{{ $.Values.alibaba.clusterId }}
{{- end }}
{{- if .Values.aws.irsa }}
- name: AWS_WEB_IDENTITY_TOKEN_FILE
  value: /var/run/secrets/flatout/aws
{{- end }}
{{- with .Values.aws.roleArn }}
- name: AWS_ROLE_ARN
  value: {{ . }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "flatout-csi.identity-mount" -}}
{{- if or .Values.alibaba.rrsa .Values.aws.irsa }}
- name: tokens
  mountPath: /var/run/secrets/flatout
  readOnly: true
{{- end }}
{{- end }}

{{- define "flatout-csi.identity-volume" -}}
{{- if or .Values.alibaba.rrsa .Values.aws.irsa }}
- name: tokens
  projected:
    sources:
      {{- if .Values.alibaba.rrsa }}
      - serviceAccountToken: {path: alibaba, audience: sts.aliyuncs.com, expirationSeconds: 3600}
      {{- end }}
      {{- if .Values.aws.irsa }}
      - serviceAccountToken: {path: aws, audience: sts.amazonaws.com, expirationSeconds: 3600}
      {{- end }}
{{- end }}
{{- end }}
