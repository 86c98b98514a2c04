#!/usr/bin/env bash
# What needs no running program: formatting, lints, licences, shell scripts. Clippy uses the
# release profile, as all builds here do, so that libtorch's bindings are compiled once.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

for component in fmt clippy; do
    cargo "$component" --version >/dev/null 2>&1 ||
        die "cargo $component is missing; run: rustup component add rustfmt clippy"
done

step formatting cargo fmt --all --check
if has shellcheck; then
    step 'shell scripts' shellcheck --external-sources scripts/*.sh bench/gpu .ci/run
else
    say 'shell scripts: skipped, shellcheck is not installed'
fi
if has cargo-deny; then
    step 'licences and sources of dependencies' cargo deny --locked check bans licenses sources
else
    say 'licences and sources of dependencies: skipped, cargo-deny is not installed'
fi
scripts/setup-node.sh
use_node
install_dashboard
step dashboard npm --prefix "$dashboard" run --silent check
step 'the chart and the Dockerfiles' scripts/check-chart.sh
step clippy cargo clippy --release --locked --workspace --all-targets -- -D warnings
