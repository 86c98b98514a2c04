#!/usr/bin/env bash
# Builds the programs, which the tests start as processes, and runs every test against a
# PostgreSQL: a private one for this run, or the one that DATABASE_URL names.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

export ASSAY_DEMO_MODEL=$build/demo/models/SmolLM2-135M-Instruct.Q4_1.gguf

scripts/build-dashboard.sh
step 'building the programs' cargo build --release --locked --workspace --bins

if cargo nextest --version >/dev/null 2>&1; then
    tests=(cargo nextest run --release --locked --workspace)
else
    say 'cargo-nextest is not installed: cargo test instead, without time limits per test'
    tests=(cargo test --release --locked --workspace --no-fail-fast)
fi
step 'building the tests' "${tests[@]}" --no-run

if [ -z "${DATABASE_URL:-}" ]; then
    tests=("${CARGO_TARGET_DIR:-target}/release/with-postgres" "${tests[@]}")
fi
step 'running the tests' "${tests[@]}"
step 'the Python client' scripts/test-client.sh
step 'the dashboard' scripts/test-dashboard.sh

if [ -z "${DATABASE_URL:-}" ]; then
    step 'running what the chart starts' scripts/run-chart.sh
else
    say 'what the chart starts: not run, it takes a private PostgreSQL, and DATABASE_URL names another'
fi
