#!/usr/bin/env bash
# link-libtorch.sh PACKAGES FOLDER: lays out FOLDER as the build expects LIBTORCH (include, lib),
# from a folder of unpacked Python packages that holds torch: build/wheels, or the site-packages
# of a Python in which torch 2.11.0 is installed.
#
# A program linked here runs on every host: lib has no libtorch_cuda.so, and a linker script in
# place of libtorch.so, which would pull it in. Where there is a GPU, the worker loads
# libtorch_cuda.so itself, from beside the file that lib/libtorch_cpu.so points to.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

[ $# -eq 2 ] || die "usage: $0 PACKAGES FOLDER"
packages=$(cd "$1" && pwd)
folder=$2
[ -e "$packages/torch/lib/libtorch_cpu.so" ] || die "$packages has no torch/lib/libtorch_cpu.so"

# Made beside the target, at the same depth, so that its relative links stay right when renamed.
mkdir -p "$(dirname "$folder")"
new=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$new"' EXIT
chmod 755 "$new"
mkdir "$new/lib"
ln -s --relative "$packages/torch/include" "$new/include"
# The loader looks for the CUDA libraries beside the link, not beside the file it points to.
shopt -s nullglob
ln -s --relative "$packages"/torch/lib/lib{torch_cpu,c10}.so "$packages"/torch/lib/libgomp*.so* \
    "$packages"/nvidia/cu13/lib/lib{cudart,cupti}.so.* "$new/lib/"
echo 'INPUT(-ltorch_cpu)' >"$new/lib/libtorch.so"
rm -rf "$folder"
mv "$new" "$folder"
trap - EXIT
