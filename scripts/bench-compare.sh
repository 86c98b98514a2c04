#!/usr/bin/env bash
# Assay beside transformers, lm-evaluation-harness and the matrix products alone: the same tokens of
# the demo text, the same weights, in rounds in which each runs once. Writes
# bench/results/compare.md; fails below what scripts/compare_report.py wants. Takes some 50 minutes,
# and a machine that does nothing else. The first run fetches 2 GB of Python packages.
# ROUNDS sets how many rounds (5), BYTES how much of the text (70000), WINDOWS ("512 1024 2048"),
# HARNESS_WINDOWS (1024) and DTYPES ("bfloat16 float32") what is measured, DEVICES (all cores as one
# device) where, REPORT where the results go. SKIP_BUILD=1 takes the example as it is.
# A short look: ROUNDS=1 WINDOWS=1024 BYTES=60000 REPORT=/tmp/compare.md make bench-compare
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

readonly work=$build/bench-compare
readonly venv=$work/venv
readonly model=$work/model
readonly programs=${CARGO_TARGET_DIR:-$root/target}/release
readonly gguf=$build/demo/models/SmolLM2-135M-Instruct.Q4_1.gguf
readonly requirements=bench/compare/requirements.txt

# export_model: the demo checkpoint as transformers reads it, made anew when what makes it changes.
export_model() {
    lock_setup
    local stamp
    stamp=$(sha256sum "$gguf" bench/compare/export.py "$requirements" | cut -d ' ' -f 1)
    [ "$stamp" != "$(cat "$model/stamp" 2>/dev/null)" ] || return 0
    rm -rf "$model" "$model.tmp"
    HF_HUB_OFFLINE=1 "$venv/bin/python" bench/compare/export.py "$gguf" "$model.tmp" >&2
    echo "$stamp" >"$model.tmp/stamp"
    mv "$model.tmp" "$model"
}

mkdir -p "$work"
[ -e "$gguf" ] || die "there is no $gguf; run scripts/setup-demo.sh first"
# What the service starts inherits the lock, so it also tells whether an earlier run still runs.
exec 8>"$work/.lock"
flock --nonblock 8 || die "another run of this benchmark is still running (its log: $work/assay.log)"
[ -n "${SKIP_BUILD:-}" ] || cargo build --release --locked -p assay-decoder --example throughput
step 'installing transformers and lm-evaluation-harness' make_venv "$requirements" "$venv"
step 'exporting the demo checkpoint' export_model
exec 9>&-
rm -rf "$work/state"
: >"$work/assay.log"
: >"$work/contestants.log"

commit=$(measured_commit)
# The settings that were given belong to the command that the report names.
command='make bench-compare'
for name in DEVICES HARNESS_WINDOWS DTYPES WINDOWS BYTES ROUNDS; do
    [ -z "${!name:-}" ] || command="$name=$(printf %q "${!name}") $command"
done
last=$(($(nproc) - 1))
devices=${DEVICES:-cpu:0$([ "$last" = 0 ] || echo "-$last")}
step 'measuring' python3 scripts/bench-compare.py --programs "$programs" --python "$venv/bin/python" \
    --work "$work" --model "$model" --text "$root/demo/moby-dick.txt" \
    --report "${REPORT:-$root/bench/results/compare.md}" --commit "$commit" --command "$command" \
    --devices "$devices" --rounds "${ROUNDS:-5}" --bytes "${BYTES:-70000}" \
    --windows "${WINDOWS:-512 1024 2048}" --harness-windows "${HARNESS_WINDOWS:-1024}" \
    --dtypes "${DTYPES:-bfloat16 float32}"
