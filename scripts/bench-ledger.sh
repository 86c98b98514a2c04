#!/usr/bin/env bash
# 64 simulated workers claim and commit 10,000 shards on a private PostgreSQL: prints how long
# claims and commits take, writes it to bench/results, and fails if claims are too slow.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

target=${CARGO_TARGET_DIR:-$root/target}
cargo build --release --locked -p assay-testkit --bins
cargo build --release --locked -p assay-store --example ledger_bench
step 'claiming and committing' "$target/release/with-postgres" \
    "$target/release/examples/ledger_bench" "$root/bench/results/ledger.md"
say 'written: bench/results/ledger.md'
