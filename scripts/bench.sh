#!/usr/bin/env bash
# Every benchmark, one after the other; each writes its results below bench/results.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

failed=()
for benchmark in scripts/bench-*.sh; do
    say "$benchmark"
    "$benchmark" || failed+=("$benchmark")
done
[ ${#failed[@]} = 0 ] || die "below what is wanted: ${failed[*]}"
