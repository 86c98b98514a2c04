#!/usr/bin/env bash
# How soon a small job computes after it was posted, and how soon 500 clients that ask for a job once
# a second are answered while it computes at the lowest priority on every core: alone, and beside
# 2,000 idle connections and 200 slow ones. Writes bench/results/latency.md; fails where the median of
# the first is 50 ms or more, or the 99th percentile of the second 20 ms or more. Takes some five
# minutes, and a machine that does nothing else.
# JOBS sets how many jobs (50), SECONDS_POLLED how long is polled (60).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

readonly work=$build/bench-latency
mkdir -p "$work"
# What the service starts inherits the lock, so it also tells whether an earlier run still runs.
exec 8>"$work/.lock"
flock --nonblock 8 || die "another run of this benchmark is still running (its log: $work/assay.log)"
rm -rf "$work/state"
: >"$work/assay.log"

commit=$(measured_commit)
# The settings that were given belong to the command that the report names.
command='make bench-latency'
for name in SECONDS_POLLED JOBS; do
    [ -z "${!name:-}" ] || command="$name=$(printf %q "${!name}") $command"
done
step 'measuring' python3 scripts/bench-latency.py --programs "${CARGO_TARGET_DIR:-$root/target}/release" \
    --work "$work" --models "$build/demo/models" --data "$root/demo" \
    --report "${REPORT:-$root/bench/results/latency.md}" --commit "$commit" --command "$command" \
    --jobs "${JOBS:-50}" --seconds "${SECONDS_POLLED:-60}"
