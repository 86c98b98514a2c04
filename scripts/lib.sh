# Shared by the scripts beside it: sourced, never run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
readonly root build

say() { printf '==> %s\n' "$*" >&2; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# step NAME COMMAND..: runs a command under a heading and says how long it took.
step() {
    local name=$1 start=$SECONDS
    shift
    say "$name"
    "$@"
    say "$name: $((SECONDS - start)) s"
}

# measured_commit: the commit that is measured, marked if a file differs from it. What another
# benchmark has written is no difference.
measured_commit() {
    local commit
    commit=$(git -C "$root" describe --always 2>/dev/null) || {
        echo unknown
        return
    }
    git -C "$root" diff --quiet HEAD -- . ':!bench/results' || commit+=-dirty
    echo "$commit"
}

# One set-up at a time: `make demo` and `make test` may be started together. The kernel drops the
# lock with the process, however it ends.
lock_setup() {
    mkdir -p "$build"
    exec 9>"$build/.setup.lock"
    flock --nonblock 9 || {
        say 'waiting for another set-up to end'
        flock 9
    }
}

# work_folder: sets `work` to an empty folder below build/, removed when the script ends. What an
# earlier, killed run left there is removed first; call it under the lock.
work_folder() {
    rm -rf "$build"/.setup.??????
    work=$(mktemp -d "$build/.setup.XXXXXX")
    trap 'rm -rf "$work"' EXIT
}

# make_venv REQUIREMENTS FOLDER: a virtual environment of exactly what the file pins; Python's own
# stays as it is. The stamp is the pins themselves. pip's temporary files are as large as the wheels
# and /tmp may be memory, so they stay below build/.
make_venv() {
    "$root/scripts/setup-system.sh" venv
    lock_setup
    cmp --silent "$1" "$2/installed.txt" && return
    rm -rf "$2" "$2.tmp"
    mkdir -p "$2.tmp"
    python3 -m venv "$2"
    TMPDIR=$2.tmp "$2/bin/python" -m pip --disable-pip-version-check install --quiet --no-cache-dir \
        --no-deps --only-binary=:all: --requirement "$1" >&2
    rm -rf "$2.tmp"
    cp "$1" "$2/installed.txt"
}

# fetch_wheels REQUIREMENTS FOLDER: downloads exactly the wheels that the file pins by hash. One
# Python and one platform are named, so that every host gets the same files; nothing is installed,
# so Python's own environment stays as it is. Temporary files stay below build/ here too.
fetch_wheels() {
    mkdir -p "$2.tmp"
    TMPDIR=$2.tmp python3 -m pip --disable-pip-version-check download --no-cache-dir \
        --no-deps --require-hashes --only-binary=:all: \
        --implementation cp --python-version 311 --abi cp311 \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux_2_25_x86_64 --platform manylinux_2_18_x86_64 \
        --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 \
        --platform manylinux1_x86_64 \
        --requirement "$1" --dest "$2" >&2
}

readonly dashboard=$root/server/dashboard

# use_node: the Node of build/ in front of the host's, where setup-node.sh has put one.
use_node() {
    [ ! -x "$build/node/bin/node" ] || PATH=$build/node/bin:$PATH
}

# has_node: a Node that Vite runs on, and npm.
has_node() {
    use_node
    has npm && node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null
}

# install_dashboard: exactly the packages that the lock file names. The stamp is the lock file.
install_dashboard() {
    cmp --silent "$dashboard/package-lock.json" "$dashboard/node_modules/.installed" && return
    step 'installing what builds the dashboard' npm --prefix "$dashboard" ci --silent --no-audit --no-fund >&2
    cp "$dashboard/package-lock.json" "$dashboard/node_modules/.installed"
}
