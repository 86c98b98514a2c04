#!/usr/bin/env bash
# libtorch 2.11.0 (the release that tch 0.24 binds) into build/libtorch, from PyPI's wheels:
# libtorch_cpu.so with the two CUDA libraries it is linked with on every host, and on a host with
# an NVIDIA GPU also libtorch_cuda.so with all of its libraries.
#
#   LIBTORCH=/DIR       use this libtorch (/DIR/include, /DIR/lib) and fetch nothing
#   ASSAY_GPU=yes|no    do not look for a GPU: fetch with or without the CUDA part
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

readonly version=2.11.0

# version_of DIR: the version that the headers of a libtorch state.
version_of() {
    sed -n 's/^#define TORCH_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' \
        "$1/include/torch/headeronly/version.h" 2>/dev/null | paste -s -d .
}

if [ -n "${LIBTORCH:-}" ]; then
    [[ $LIBTORCH = /* ]] || die "LIBTORCH=$LIBTORCH is not an absolute path"
    [ -e "$LIBTORCH/lib/libtorch_cpu.so" ] ||
        die "LIBTORCH=$LIBTORCH has no lib/libtorch_cpu.so; point it at a libtorch $version or unset it"
    found=$(version_of "$LIBTORCH")
    [ "$found" = "$version" ] ||
        die "LIBTORCH=$LIBTORCH is version ${found:-unknown}, $version is needed; unset it to fetch one"
    exit 0
fi

gpu=${ASSAY_GPU:-$(if nvidia-smi -L >/dev/null 2>&1; then echo yes; else echo no; fi)}
case $gpu in
    yes) kind=cuda size='about 2.5 GB' libraries=('torch/lib/*.so*') ;;
    no) kind=cpu size='about 540 MB' libraries=(torch/lib/lib{torch_cpu,c10}.so 'torch/lib/libgomp*') ;;
    *) die "ASSAY_GPU is $gpu, not yes or no" ;;
esac
readonly requirements=$root/scripts/libtorch-$kind.txt

# The stamp is the pins themselves: another pin or another kind of host fetches anew.
lock_setup
if cmp --silent "$requirements" "$build/wheels/requirements.txt" && [ -e "$build/libtorch/lib/libtorch.so" ]; then
    exit 0
fi
[ "$(uname -m)" = x86_64 ] ||
    die "the wheels are for x86_64; set LIBTORCH to a libtorch $version for $(uname -m)"

work_folder
say "fetching libtorch $version ($kind) from PyPI ($size, once)"
fetch_wheels "$requirements" "$work/download"
say 'unpacking libtorch'
mkdir "$work/wheels"
unzip -q "$work"/download/torch-*.whl 'torch/include/*' "${libraries[@]}" -d "$work/wheels"
for wheel in "$work"/download/nvidia_*.whl; do
    unzip -q "$wheel" 'nvidia/*/lib/*.so*' -d "$work/wheels"
done
cp "$requirements" "$work/wheels/requirements.txt"

# Renamed into place whole; what was there before goes with the work folder.
[ ! -e "$build/wheels" ] || mv "$build/wheels" "$work/replaced"
mv "$work/wheels" "$build/wheels"
"$root/scripts/link-libtorch.sh" "$build/wheels" "$build/libtorch"
say "libtorch $(version_of "$build/libtorch") is in build/libtorch"
