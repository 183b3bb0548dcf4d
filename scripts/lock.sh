#!/bin/sh
# Resolves pyproject.toml into requirements.lock, for every Python from 3.11 and every platform, and
# into deploy/requirements.lock what the production image needs of it, in the same versions.
# Every Python gets the same versions, so that what is checked with one holds for the others.
# Packages that are locked already keep their version; `make lock UPGRADE=1` takes the newest.
#
# uv comes from the package index that pip is set up for, into a scratch folder; the same version
# each time, because another one may write the file in another way.
set -eu
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT

"${PYTHON:-python3}" -m venv "$scratch"
"$scratch/bin/python" -m pip install --quiet --disable-pip-version-check uv==0.13.8
# The header would name the scratch folder; the address of an index is left out by default.
resolve() {
    UV_SYSTEM_CERTS=1 "$scratch/bin/uv" pip compile --quiet --universal --python-version 3.11 \
        --fork-strategy fewest --generate-hashes --no-header --extra postgres "$@"
}
resolve --group dev ${UPGRADE:+--upgrade} pyproject.toml --output-file requirements.lock
resolve --group image --constraint requirements.lock \
    pyproject.toml --output-file deploy/requirements.lock
