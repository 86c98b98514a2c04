#!/usr/bin/env bash
# Checks for the Rust toolchain that the workspace asks for. Installs nothing: a toolchain is the
# developer's choice.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml")
how="Get one with rustup (the package rustup of your system, or https://rustup.rs), then run:
    rustup toolchain install stable --component rustfmt,clippy && rustup default stable"

if ! has rustc && [ -x "$HOME/.cargo/bin/rustc" ]; then
    die "Rust is installed but not on PATH; run: . \"$HOME/.cargo/env\""
fi
has rustc || die "Rust $wanted or newer is needed and none was found. $how"

found=$(rustc --version | cut -d ' ' -f 2)
oldest=$(printf '%s\n' "$wanted" "${found%%-*}" | sort --version-sort | head -n 1)
[ "$oldest" = "$wanted" ] || die "Rust $wanted or newer is needed, this is $found. $how"
