#!/usr/bin/env bash
# Loads the demo checkpoint and prints the peak of memory above that of a process with libtorch
# alone; fails if it is more than a tenth above the weights.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

model=${1:-$build/demo/models/SmolLM2-135M-Instruct.Q4_1.gguf}
target=${CARGO_TARGET_DIR:-$root/target}
[ -e "$model" ] || die "there is no $model; run scripts/setup-demo.sh first"
cargo build --release --locked -p assay-decoder --example load
load=$target/release/examples/load

read -r _ alone _ < <("$load")
results=$root/bench/results/load.md
{
    echo '# Memory while loading'
    echo
    echo "Written by \`scripts/bench-load.sh\`: the largest resident set of a process that loads a"
    echo "checkpoint, less that of one that has libtorch and nothing else ($((alone / 1000000)) MB)."
    echo
    echo '| checkpoint | dtype | weights MB | peak MB | ratio | seconds |'
    echo '| --- | --- | --: | --: | --: | --: |'
} >"$results.tmp"
above=()
for dtype in float32 bfloat16; do
    read -r _ peak _ weights _ seconds < <("$load" "$model" "$dtype")
    own=$((peak - alone))
    # In thousandths, for the shell knows no fractions.
    ratio=$((own * 1000 / weights))
    printf '| %s | %s | %s | %s | %d.%03d | %s |\n' "$(basename "$model")" "$dtype" \
        $((weights / 1000000)) $((own / 1000000)) $((ratio / 1000)) $((ratio % 1000)) "$seconds" >>"$results.tmp"
    [ "$ratio" -le 1100 ] || above+=("$dtype")
done
{
    echo
    echo "- $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | sed 's/^ *//'), one thread."
} >>"$results.tmp"
mv "$results.tmp" "$results"
cat "$results"
say "written: ${results#"$root"/}"
[ ${#above[@]} = 0 ] || die "more than a tenth above the weights: ${above[*]}"
