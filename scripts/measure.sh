#!/usr/bin/env bash
# The figures of docs/numbers.md: flatout beside the floor, 4 GiB from nginx (sendfile, tmpfs) and from `flatout serve`.
# usage: scripts/measure.sh [ROUNDS] [CASE…]     cases: nowhere signed verified memory stream tmpfs disk https origin
# Needs nginx, openssl (https) and 10 GiB of memory; a quiet machine. Takes about a minute a case. The lab (bench/) will replace it.
set -euo pipefail
rounds=${1:-7}
[ $# -gt 0 ] && shift
cases=${*:-nowhere signed verified memory stream tmpfs disk https origin}
cd "$(dirname "$0")/.."
cargo build --release --quiet -p flatout-cli
cargo build --release --quiet -p flatout-server --example send_floor
flatout=$PWD/target/release/flatout
work=$(mktemp -d /dev/shm/flatout-measure.XXXXXX)
disk=$(mktemp -d /var/tmp/flatout-measure.XXXXXX)
started=()
finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work" "$disk"
}
trap finish EXIT
trap 'exit 130' INT TERM

nginx_port=18431 serve_port=18432 root_port=18433 send_port=18434 tls_port=18435
mkdir -p "$work/www/bench"
"$flatout" serve --synthetic bench/big=4GiB --no-auth --listen 127.0.0.1:$serve_port >/dev/null &
started+=($!)
sleep 0.5
"$flatout" cp --quiet "http://127.0.0.1:$serve_port/bench/big" "$work/www/bench/big"
chmod -R a+rX "$work"
# nginx with a certificate of its own; the floor is then a bare tokio-rustls loop.
tls_server=
case " $cases " in
*" https "*)
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=measure \
        -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
        -keyout "$work/tls.key" -out "$work/tls.pem" 2>/dev/null
    tls_server="server { listen 127.0.0.1:$tls_port ssl; root $work/www; ssl_session_cache shared:tls:1m;
        ssl_certificate $work/tls.pem; ssl_certificate_key $work/tls.key; }"
    ;;
esac
cat >"$work/nginx.conf" <<CONF
daemon off; worker_processes 1; pid $work/pid; error_log $work/error.log;
events { worker_connections 1024; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 10000000;
    client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3;
    uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
    server { listen 127.0.0.1:$nginx_port; root $work/www; }
    $tls_server
}
CONF
nginx -c "$work/nginx.conf" 2>/dev/null &
started+=($!)
sleep 0.5

# One line a case: medians of flatout and of the floor, and their ratios.
row() {
    local name=$1
    shift
    "$flatout" bench get "$@" --repeat "$rounds" --floor --json | python3 -c '
import json, statistics, sys
rows = [json.loads(line) for line in sys.stdin]
def side(op):
    runs = [row for row in rows if row["op"] == op]
    median = lambda key: statistics.median(run[key] for run in runs)
    shape = runs[0].get("shape", "") + " "
    return "%s%.2f GiB/s, %.3f CPU s/GiB, %.0f MiB" % (shape.lstrip(), median("gib_per_s"), median("cpu_s_per_gib"), max(run["peak_rss_mib"] for run in runs))
ratio = rows[-1]
got = [row for row in rows if row["op"] == "get"]
busy = ratio["origin_busy"]
print("| %s | %s | %s | %.2f | %.2f | %s | %s |" % (sys.argv[1], side("get"), side("floor"), ratio["throughput"], ratio["cpu"], "-" if busy is None else "%.2f" % busy, got[0]["verified"]))
' "$name"
}

# CPU seconds of an origin per GiB sent, while flatout drops what it sends.
origin_row() {
    local name=$1 pid=$2 url=$3 before after
    for _ in $(seq "$rounds"); do
        before=$(awk '{ print $14 + $15 }' "/proc/$pid/stat")
        "$flatout" bench get "$url" --repeat 1 --json >/dev/null
        after=$(awk '{ print $14 + $15 }' "/proc/$pid/stat")
        echo $((after - before))
    done | sort -n | awk -v name="$name" -v hz="$(getconf CLK_TCK)" '{ v[NR] = $1 } END { printf "| %s | %.3f |\n", name, v[int((NR + 1) / 2)] / hz / 4 }'
}

nginx_url=http://127.0.0.1:$nginx_port/bench/big
echo "| case | flatout | the floor | throughput | CPU | origin busy | verified |"
echo "|---|---|---|---|---|---|---|"
for case in $cases; do
    case $case in
    nowhere) row "nowhere" "$nginx_url" ;;
    signed)
        AWS_ACCESS_KEY_ID=AKIAEXAMPLE AWS_SECRET_ACCESS_KEY=secret row "nowhere, signed" s3://bench/big --endpoint-url http://127.0.0.1:$nginx_port
        ;;
    verified) row "nowhere, CRC verified (flatout serve)" s3://bench/big --no-sign-request --endpoint-url http://127.0.0.1:$serve_port ;;
    memory) row "memory" "$nginx_url" --landing memory ;;
    stream) row "stream" "$nginx_url" --landing stream ;;
    tmpfs) row "file, tmpfs" "$nginx_url" --landing "file:$work/out" ;;
    disk) row "file, disk" "$nginx_url" --landing "file:$disk/out" ;;
    https)
        row "nowhere, https" "https://127.0.0.1:$tls_port/bench/big" --ca-bundle "$work/tls.pem"
        row "memory, https" "https://127.0.0.1:$tls_port/bench/big" --ca-bundle "$work/tls.pem" --landing memory
        ;;
    origin)
        nginx_pid=$(pgrep -P "$(cat "$work/pid")" | head -1)
        "$flatout" serve --root "$work/www" --no-auth --listen 127.0.0.1:$root_port >/dev/null &
        started+=($!)
        root_pid=$!
        target/release/examples/send_floor 127.0.0.1:$send_port 4294967296 >/dev/null 2>&1 &
        started+=($!)
        send_pid=$!
        sleep 0.5
        echo
        echo "| origin | CPU s/GiB of its own |"
        echo "|---|---|"
        origin_row "bare send(2) loop" "$send_pid" http://127.0.0.1:$send_port/bench/big
        origin_row "flatout serve --synthetic" "${started[0]}" http://127.0.0.1:$serve_port/bench/big
        origin_row "nginx, sendfile" "$nginx_pid" "$nginx_url"
        origin_row "flatout serve --root" "$root_pid" http://127.0.0.1:$root_port/bench/big
        ;;
    *) echo "no case $case" >&2; exit 2 ;;
    esac
done
