#!/usr/bin/env bash
# The chart in helm/assay as helm and the schemas of Kubernetes see it, and the Dockerfiles as hadolint
# does. No cluster is needed; scripts/run-chart.sh runs what the chart starts.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root"

"$root/scripts/setup-deploy.sh"
readonly tools=$build/deploy/tools python=$build/deploy/venv/bin/python
readonly chart=helm/assay rules=docs/prometheus-rules.yml

version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
for field in version appVersion; do
    grep -Eq "^$field: \"?$version\"?\$" "$chart/Chart.yaml" ||
        die "$chart/Chart.yaml: $field is not $version, the version of the workspace"
done
rust=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
for file in docker/*.Dockerfile; do
    grep -q "^FROM rust:$rust-" "$file" || die "$file: not Rust $rust, the workspace's rust-version"
done
cmp "$rules" "$chart/files/prometheus-rules.yml" ||
    die "the chart has other alerts; run: cp $rules $chart/files/"
! has promtool || promtool check rules "$rules" >&2
"$python" helm/check/table.py "$chart"
"$tools/helm" lint --strict --quiet "$chart"
for values in "$chart"/ci/*.yaml; do
    "$tools/helm" lint --strict --quiet --values "$values" "$chart"
done
"$python" helm/check/check.py "$tools/helm" "$chart"
"$tools/hadolint" docker/*.Dockerfile
