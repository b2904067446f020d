#!/usr/bin/env bash
# What the lab (bench/) does not measure: a stream beside a floor that writes to a pipe, and what origins cost themselves.
# usage: scripts/measure.sh [ROUNDS] [stream] [origin]
# Needs nginx and 10 GiB of memory; a quiet machine. Takes about a minute a case.
set -euo pipefail
rounds=${1:-7}
[ $# -gt 0 ] && shift
cases=${*:-stream origin}
cd "$(dirname "$0")/.."
cargo build --release --quiet -p flatout-cli
cargo build --release --quiet -p flatout-server --example send_floor
flatout=$PWD/target/release/flatout
work=$(mktemp -d /dev/shm/flatout-measure.XXXXXX)
started=()
finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

nginx_port=18431 serve_port=18432 root_port=18433 send_port=18434
mkdir -p "$work/www/bench"
"$flatout" serve --synthetic bench/big=4GiB --no-auth --listen 127.0.0.1:$serve_port >/dev/null &
started+=($!)
sleep 0.5
"$flatout" cp --quiet "http://127.0.0.1:$serve_port/bench/big" "$work/www/bench/big"
chmod -R a+rX "$work"
cat >"$work/nginx.conf" <<CONF
daemon off; worker_processes 1; pid $work/pid; error_log $work/error.log;
events { worker_connections 1024; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 10000000;
    client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3;
    uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
    server { listen 127.0.0.1:$nginx_port; root $work/www; }
}
CONF
nginx -c "$work/nginx.conf" 2>/dev/null &
started+=($!)
sleep 0.5
nginx_url=http://127.0.0.1:$nginx_port/bench/big

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

for case in $cases; do
    case $case in
    stream) "$flatout" bench get "$nginx_url" --landing stream --repeat "$rounds" --floor ;;
    origin)
        nginx_pid=$(pgrep -P "$(cat "$work/pid")" | head -1)
        "$flatout" serve --root "$work/www" --no-auth --listen 127.0.0.1:$root_port >/dev/null &
        started+=($!)
        root_pid=$!
        target/release/examples/send_floor 127.0.0.1:$send_port 4294967296 >/dev/null 2>&1 &
        started+=($!)
        send_pid=$!
        sleep 0.5
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
