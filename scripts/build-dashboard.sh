#!/usr/bin/env bash
# The dashboard into server/dashboard/dist, which the server embeds. Nothing is done where no input
# has changed since. ASSAY_DASHBOARD=no leaves it out: the server then has a page that says so.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

[ "${ASSAY_DASHBOARD:-yes}" = yes ] || exit 0
"$root/scripts/setup-node.sh"
use_node
install_dashboard

cd "$dashboard"
inputs=$(find src public ./*.ts index.html tsconfig.json package-lock.json "$root/openapi/openapi.json" \
    -type f ! -name schema.d.ts -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
if [ -e dist/index.html ] && [ "$inputs" = "$(cat node_modules/.built 2>/dev/null)" ]; then
    exit 0
fi
step 'building the dashboard' npm run --silent build >&2
echo "$inputs" >node_modules/.built
