#!/usr/bin/env bash
# The soak: for ASSAY_SOAK_MINUTES (30 unless set) the same job again and again, on workers that are
# slowed down, killed, frozen and joined at random. Prints each round's seed, what was done to it
# and what became of it; fails with the first round that gives other integers, loses a token or
# counts one twice. ASSAY_TEST_SEED repeats the rounds.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

export ASSAY_SOAK_MINUTES=${ASSAY_SOAK_MINUTES:-30}

step 'building the programs' cargo build --release --locked --workspace --bins

# cargo test and not nextest: it shows what a test prints while it runs, and sets it no limit.
soak=(cargo test --release --locked -p assay-tests --test e2e --)
step 'building the tests' cargo test --release --locked -p assay-tests --test e2e --no-run

postgres=()
if [ -z "${DATABASE_URL:-}" ]; then
    postgres=("${CARGO_TARGET_DIR:-target}/release/with-postgres")
fi
step "disturbing for $ASSAY_SOAK_MINUTES minutes" "${postgres[@]}" "${soak[@]}" \
    --ignored --exact --nocapture elastic::soak
