#!/usr/bin/env bash
# The demo: starts the service on a free port with a fresh database, scores a text with a real
# checkpoint on all devices of one worker, prints the table and stops everything.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

readonly demo=$build/demo
readonly log=$demo/assay.log
readonly assay=${CARGO_TARGET_DIR:-$root/target}/release/assay

# What the service starts inherits the lock, so it also tells whether an earlier demo still runs.
exec 8>"$demo/.lock"
flock --nonblock 8 || die "another demo is still running (its log: $log)"
rm -rf "$demo/state"
# Emptied here and not by the service's redirection: what follows the log could read an old address.
: >"$log"

# One thread a core, up to four: enough to see several devices share a job.
cores=$(nproc)
devices=$(seq --format 'cpu:%.0f' --separator , 0 $((cores < 4 ? cores - 1 : 3)))

stop() {
    kill -TERM "$service" 2>/dev/null || true
    wait "$service" || true
}
say "starting PostgreSQL, the server and a worker with the devices $devices (log: $log)"
"$assay" up --listen 127.0.0.1:0 --model-root "$demo/models" --data-root "$root/demo" \
    --state-dir "$demo/state" --workers 1 --devices "$devices" >>"$log" 2>&1 &
service=$!
trap stop EXIT

# Ends with the line looked for, or with the service.
url=$(tail --lines +1 --follow --pid "$service" "$log" | sed -n '/^listening on /{s///p;q}') || true
[ -n "$url" ] || {
    tail --lines 20 "$log" >&2
    die "the service did not start; its whole log is $log"
}

say "scoring demo/moby-dick.txt ($url, docs at $url/docs)"
"$assay" submit --server "$url" --model SmolLM2-135M-Instruct.Q4_1.gguf --dataset moby-dick.txt --wait
