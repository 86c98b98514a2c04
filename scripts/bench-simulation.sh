#!/usr/bin/env bash
# Spreads some jobs over some devices by several strategies, in virtual time: prints tables and
# writes them and a plot to bench/results. The numbers are the same on every host.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

cargo build --release --locked -p assay-scoring --example simulation
step 'simulating' "${CARGO_TARGET_DIR:-$root/target}/release/examples/simulation" "$root/bench/results"
say 'written: bench/results/simulation.md, bench/results/simulation.svg'
