#!/usr/bin/env bash
# The objects of the chart with its defaults, for clusters without Helm.
#
#   deploy/charts/render.sh            writes deploy/kubernetes/flatout-csi.yaml
#   deploy/charts/render.sh --check    says how the file differs from what would be written
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/charts/tools.sh

file=deploy/kubernetes/flatout-csi.yaml

manifests() {
    echo "# Written by deploy/charts/render.sh: change the chart, not this file."
    echo "#"
    echo "#   kubectl apply -f $file"
    # Nothing here is Helm's.
    # shellcheck disable=SC2119 # the defaults
    render | sed -e '/app.kubernetes.io\/managed-by: Helm/d' -e '/^# Source: /d'
}

case ${1:-} in
    "") manifests >"$file" ;;
    --check) diff "$file" <(manifests) || { echo "render: $file is not current: deploy/charts/render.sh" >&2; exit 1; } ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 4 ;;
esac
