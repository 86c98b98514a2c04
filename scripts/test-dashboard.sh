#!/usr/bin/env bash
# The dashboard in a browser, against the service that embeds it: private PostgreSQL, server and
# worker, all ended with this script. Pictures of the pages are left below build/screenshots.
#
#   CHROMIUM=/PATH      use this browser; Debian's chromium is installed otherwise
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

programs=$(realpath "${CARGO_TARGET_DIR:-target}/release")
readonly programs
# The cluster of `assay up` would stay, as it is meant to. The tests make a key in the database.
[ -n "${DATABASE_URL:-}" ] || exec "$programs/with-postgres" "scripts/${0##*/}" "$@"
[ -n "${CHROMIUM:-}" ] || scripts/setup-system.sh chromium
use_node
install_dashboard

work=$(mktemp -d "$build/.dashboard.XXXXXX")
up=
finish() {
    [ -z "$up" ] || kill "$up" 2>/dev/null || true
    [ -z "$up" ] || wait "$up" || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$work/models" "$work/data"
ln "$build/demo/models/"*.gguf "$work/models/" 2>/dev/null || cp "$build/demo/models/"*.gguf "$work/models/"
cp -r tests/fixtures/llama_gqa "$work/models/"
cp demo/moby-dick.txt "$work/data/"
# Some paragraphs, each a document.
python3 - demo/moby-dick.txt >"$work/data/excerpt.jsonl" <<'PYTHON'
import json, sys

paragraphs = open(sys.argv[1], encoding="utf-8").read().split("\n\n")
for text in [" ".join(p.split()) for p in paragraphs if 200 < len(p) < 700][:12]:
    print(json.dumps({"text": text}))
PYTHON

mkfifo "$work/said"
"$programs/assay" up --listen 127.0.0.1:0 --model-root "$work/models" --data-root "$work/data" \
    --state-dir "$work/state" >"$work/said" 2>"$build/dashboard-service.log" &
up=$!
# Kept open: what the service says later must not fail.
exec 3<"$work/said"
url=
while read -r line <&3; do
    case $line in 'listening on '*) url=${line#listening on } && break ;; esac
done
[ -n "$url" ] || die "the service did not start; its log is build/dashboard-service.log"

rm -rf "$build/screenshots"
cd "$dashboard"
ASSAY_PROGRAMS=$programs ASSAY_UI=${ASSAY_UI:-$url/ui/} npx --no-install playwright test "$@"
