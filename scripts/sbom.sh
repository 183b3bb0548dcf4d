#!/bin/sh
# Writes build/sbom.json: what is in the production image besides its base, as CycloneDX, with the
# hashes of the lock. With AUDIT=1 it then looks the packages up in the database of the Python
# Packaging Authority, and fails if one has a known vulnerability or could not be looked up.
#
# Both tools come from the package index that pip is set up for, into a scratch folder.
set -eu
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT

"${PYTHON:-python3}" -m venv "$scratch"
"$scratch/bin/python" -m pip install --quiet --disable-pip-version-check \
    cyclonedx-bom==7.5.0 ${AUDIT:+pip-audit==2.10.1}
mkdir -p build
"$scratch/bin/cyclonedx-py" requirements --output-reproducible --output-format JSON \
    --pyproject pyproject.toml --output-file build/sbom.json deploy/requirements.lock
[ -z "${AUDIT:-}" ] || "$scratch/bin/pip-audit" --strict --require-hashes --disable-pip \
    --requirement deploy/requirements.lock
