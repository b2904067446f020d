#!/usr/bin/env bash
# The chart of the Kubernetes driver: helm takes it, Kubernetes would take its objects and the examples, its schema
# refuses wrong values, it writes no flag that the program does not know, and the raw manifests are current.
#
#   scripts/chart-test.sh
#
# Variables: FLATOUT, a program to ask for its flags instead of a build.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/charts/tools.sh

main() {
    built=${FLATOUT:-target/unchecked/flatout}
    [ -n "${FLATOUT:-}" ] || cargo build --quiet --profile unchecked -p flatout-cli
    helm=$(tool $HELM)
    kubeconform=$(tool $KUBECONFORM)
    schemas=$(schemas)
    rendered=$(mktemp -d)
    trap 'rm -rf "$rendered"' EXIT

    render >"$rendered/defaults.yaml"
    for values in "$chart"/ci/*-values.yaml; do
        "$helm" lint --quiet --strict --values "$values" "$chart" || fail "helm lint refuses $values"
        render --values "$values" >"$rendered/$(basename "$values")"
    done
    "$helm" lint --quiet --strict "$chart" || fail "helm lint refuses the defaults"
    valid "$rendered" deploy/examples deploy/kubernetes
    values_arrive
    wrong_values_are_refused
    wrong_objects_are_refused
    flags_are_known
    deploy/charts/render.sh --check
    echo "chart: ok, $(cat "$rendered"/*.yaml deploy/examples/*.yaml | grep -c '^kind: ') objects"
}

# By the schemas of Kubernetes.
valid() {
    "$kubeconform" -strict -schema-location "$schemas/{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json" "$@"
}

# A file, and a line that it must have.
has() { grep -qF -- "$2" "$rendered/$1" || fail "$1 has no line '$2'"; }

values_arrive() {
    has defaults.yaml "--memory=4096MiB"
    has defaults.yaml "--volume-memory=256MiB"
    has defaults.yaml "memory: 4608Mi"
    has defaults.yaml "terminationGracePeriodSeconds: 360"
    has everything-values.yaml "--memory=8192MiB"
    has everything-values.yaml "memory: 8704Mi"
    has everything-values.yaml "--drain=600s"
    has everything-values.yaml "--metrics=[::]:9200"
    has everything-values.yaml "maxUnavailable: 10%"
    has everything-values.yaml "path: /mnt/flatout/engine"
    has everything-values.yaml "value: acs:ram::1234567890123456:oidc-provider/ack-rrsa-c0123456789abcdef"
    has everything-values.yaml "--engine-pods="
    has everything-values.yaml "--inline-driver-keys"
    has everything-values.yaml "verbs: [get, list, create, delete]"
    has defaults.yaml "resources: [serviceaccounts]"
    ! grep -q "engine-pods\|resources: \[pods\]" "$rendered/defaults.yaml" || fail "pods may be made by default"
    has ack-values.yaml "name: ossplugin.csi.alibabacloud.com"
    has ack-values.yaml "path: /var/lib/kubelet/plugins/ossplugin.csi.alibabacloud.com"
    ! grep -q '^kind: ClusterRole' "$rendered/static-values.yaml" || fail "without a controller and service accounts there are rights"
}

wrong_values_are_refused() {
    local wrong
    while read -r wrong; do
        # shellcheck disable=SC2086 # words
        ! render $wrong >"$rendered/log" 2>&1 || fail "$wrong is accepted"
        # Refused as a value, and not for another reason.
        grep -q "values don't meet the specifications\|engine.volumeMemory is" "$rendered/log" ||
            fail "$wrong: $(cat "$rendered/log")"
    done <<'WRONG'
--set unknown=1
--set engine.memroy=4Gi
--set engine.memory=4GB
--set engine.memory=4
--set engine.volumeMemory=5Gi
--set engine.volumeMemory=8Mi
--set engine.requests.memory=-1Gi
--set engine.requests.memroy=1Gi
--set extraEnv[0].nam=A
--set imagePullSecrets[0].nam=x
--set image.repository=registry/flatout:1.2
--set alibaba.accountId=1,alibaba.clusterId=c,alibaba.rrsa=true,alibaba.roleName=acs:ram::1:role/x
--set engine.drainSeconds=5m
--set engine.hostNetwork=yes
--set isolation.enabled=yes
--set node.readServiceAccounts=1
--set driverName=Not_A_Name
--set folder=relative
--set folder=/
--set kubeletDir=
--set controller.replicas=0
--set metrics.port=70000
--set metrics.address=::
--set engine.maxSurge=0
--set node.maxUnavailable=ten
--set tokenRequests[0].audience=a,tokenRequests[0].expirationSeconds=60
--set alibaba.accountId=1234567890123456
--set alibaba.roleName=flatout
--set alibaba.roleName=flatout,alibaba.rrsa=true
--set aws.roleArn=arn:aws:iam::123456789012:role/flatout
--set aws.irsa=true,aws.roleArn=flatout
--set image.pullPolicy=Sometimes
WRONG
}

# So that a schema that accepts everything is seen.
wrong_objects_are_refused() {
    sed 's/attachRequired: false/attachRequired: "false"/' "$rendered/defaults.yaml" >"$rendered/type"
    sed 's/attachRequired/attachmentRequired/' "$rendered/defaults.yaml" >"$rendered/field"
    sed 's/interval: 30s/intervall: 30s/' "$rendered/static-values.yaml" >"$rendered/custom"
    local file
    for file in type field custom; do
        ! valid - <"$rendered/$file" >/dev/null || fail "an object with a wrong $file is accepted"
    done
}

# Those that follow `csi PART` in the arguments of a container.
flags_are_known() {
    local part flag count=0
    while read -r part flag; do
        "$built" csi "$part" --help | grep -q -- "^ *$flag " || fail "flatout csi $part has no $flag"
        count=$((count + 1))
    done < <(cat "$rendered"/*.yaml | awk '
        $1 ~ /^#/ { next }
        $1 != "-" { part = ""; was = "" }
        $1 == "-" && was == "csi" { part = $2 }
        $1 == "-" && part && $2 ~ /^--/ { split($2, flag, "="); print part, flag[1] }
        $1 == "-" { was = $2 }' | sort -u)
    [ "$count" -ge 12 ] || fail "only $count flags were found in the chart"
}

fail() {
    echo "chart: $1" >&2
    exit 1
}

main "$@"
