#!/usr/bin/env bash
# Starts what the chart starts, with its own arguments and variables, as processes of this machine, and
# has a job succeed: what fails here would fail on a cluster. Needs the programs, so build them before.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

"$root/scripts/setup-deploy.sh"
readonly programs=${CARGO_TARGET_DIR:-target}/release
# A database of its own, whatever DATABASE_URL names: that may hold tests.
"$programs/with-postgres" "$build/deploy/venv/bin/python" helm/check/run.py \
    "$build/deploy/tools/helm" helm/assay "$programs"
