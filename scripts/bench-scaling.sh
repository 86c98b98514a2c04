#!/usr/bin/env bash
# How one job scales from one device of this machine to two, in one process and in two: the demo
# checkpoint on the demo text, in interleaved pairs. Writes bench/results/scaling.md; fails below
# an efficiency of 0.90 or above 1 % of communication. Takes some 20 minutes, and a machine that
# does nothing else.
# PAIRS sets how many pairs (5), BYTES how much of the text (all).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

readonly work=$build/bench-scaling
mkdir -p "$work"
# What the service starts inherits the lock, so it also tells whether an earlier run still runs.
exec 8>"$work/.lock"
flock --nonblock 8 || die "another run of this benchmark is still running (its log: $work/assay.log)"
rm -rf "$work/state"
: >"$work/assay.log"

commit=$(measured_commit)
options=(--pairs "${PAIRS:-5}")
command='make bench-scaling'
[ -z "${PAIRS:-}" ] || command="PAIRS=$PAIRS $command"
if [ -n "${BYTES:-}" ]; then
    options+=(--bytes "$BYTES")
    command="BYTES=$BYTES $command"
fi
step 'measuring' python3 scripts/bench-scaling.py --programs "${CARGO_TARGET_DIR:-$root/target}/release" \
    --work "$work" --models "$build/demo/models" --data "$root/demo" \
    --report "${REPORT:-$root/bench/results/scaling.md}" \
    --commit "$commit" --command "$command" "${options[@]}"
