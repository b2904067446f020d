# shellcheck shell=bash
# Of render.sh and scripts/chart-test.sh: helm, kubeconform and schemas, in the cache, where they are made once.
# All come as Go modules.

HELM=helm.sh/helm/v3/cmd/helm@v3.22.0
# shellcheck disable=SC2034 # of scripts/chart-test.sh
KUBECONFORM=github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
# Of their files only the schemas are used.
KUBERNETES=k8s.io/kubernetes@v1.36.3
PROMETHEUS_OPERATOR=github.com/prometheus-operator/prometheus-operator@v0.85.0

charts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
chart=$charts/flatout-csi
cache=${FLATOUT_CACHE:-$HOME/.cache/flatout}
PATH=$PATH:/usr/local/go/bin

# Says where the program of a Go module is.
tool() {
    local name folder building
    name=${1%@*}
    name=${name##*/}
    folder=$cache/$name-${1##*@}
    if [ ! -x "$folder/$name" ]; then
        echo "chart: go install $1" >&2
        mkdir -p "$cache"
        building=$(mktemp -d "$cache/building.XXXXXX")
        GOBIN=$building GOFLAGS=-trimpath nice go install "$1" >&2
        mkdir -p "$folder"
        mv "$building/$name" "$folder/"
        rmdir "$building"
    fi
    echo "$folder/$name"
}

# Says where the files of a Go module are.
module() { nice go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'; }

# Says in which folder the schemas are; named after what they are made of.
schemas() {
    local folder building
    folder=$cache/schemas-$({ echo "$KUBERNETES $PROMETHEUS_OPERATOR"; cat "$charts/schemas.py"; } | cksum | cut -d' ' -f1)
    if [ ! -d "$folder" ]; then
        echo "chart: schemas of $KUBERNETES" >&2
        mkdir -p "$cache"
        building=$(mktemp -d "$cache/building.XXXXXX")
        python3 "$charts/schemas.py" "$building" "$(module $KUBERNETES)/api/openapi-spec/swagger.json" \
            "$(module $PROMETHEUS_OPERATOR)/jsonnet/prometheus-operator/podmonitors-crd.json"
        mv -T "$building" "$folder"
    fi
    echo "$folder"
}

# The objects of the chart with these options.
render() { "$(tool $HELM)" template flatout-csi "$chart" --namespace kube-system --kube-version "${KUBERNETES##*@}" "$@"; }
