#!/bin/sh
# Install cudaops into an environment of its own: docker/install.sh PREFIX [EXTRA,...]
#
# The Dockerfile runs this, and tests/test_packaging.py runs it outside of Docker: the same steps.
# PYTHON names the interpreter (default: python3), WHEELS an empty folder that keeps the wheel. Versions are
# those of constraints.txt.
set -eu

prefix=${1:?usage: docker/install.sh PREFIX [EXTRA,...]}
extras=${2:-}
source=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

"${PYTHON:-python3}" -m venv "$prefix"
wheels=${WHEELS:-$(mktemp -d)}
[ -n "${WHEELS:-}" ] || trap 'rm -rf "$wheels"' EXIT
"$prefix/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" "$source"
set -- "$wheels"/cudaops-*.whl
"$prefix/bin/python" -m pip install --quiet --no-cache-dir --constraint "$source/constraints.txt" \
    "$1${extras:+[$extras]}"
"$prefix/bin/cudaops" --help >/dev/null
