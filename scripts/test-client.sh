#!/usr/bin/env bash
# The Python client and the GitHub Action: lints, types, then every test against real services. With
# the argument `mlflow`, the example for MLflow against a tracking server instead.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
cd "$root/clients/python"

# Each service of the tests has a database of its own.
unset DATABASE_URL

# prepare NAME REQUIREMENTS: sets `venv` to an environment of exactly what the file pins.
prepare() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        # Ubuntu 22.04 has an older one, and all else of `make test` runs there.
        [ -z "${CI:-}" ] || die "the client's tests need Python 3.11 or newer"
        say "the client's tests: skipped, they need Python 3.11 or newer (the client runs on 3.10)"
        exit 0
    }
    venv=$build/$1
    step 'installing what the client is tested with' make_venv "$PWD/$2" "$venv"
    exec 9>&-
    export PATH=$venv/bin:$PATH
}

if [ "${1:-}" = mlflow ]; then
    prepare client-mlflow requirements-mlflow.txt
    # Warnings of what is imported there are not ours.
    step 'logging to MLflow' pytest --quiet -W default tests/mlflow_check.py
    exit
fi

prepare client requirements-test.txt
step 'lints of the client' ruff check . ../github-action
step 'formatting of the client' ruff format --check . ../github-action
step 'types of the client' mypy
step 'tests of the client' pytest --quiet
