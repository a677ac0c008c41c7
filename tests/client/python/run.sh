#!/usr/bin/env bash
# Installs client/python with what its tests need into a virtual environment of the build folder, and runs the tests.
#   tests/client/python/run.sh [--build-dir=build/release] [PYTEST-ARGUMENT...]
# The environment (BUILD/python-venv) is made anew when pyproject.toml changes; the package is installed each time its
# files or the .proto files did. The server is BUILD/normd, or the program that NORMD_PROGRAM names.
set -euo pipefail
cd "$(dirname "$0")/../../.."

build=build/release
if [[ ${1:-} == --build-dir=* ]]; then
  build=${1#*=}
  shift
fi
mkdir -p "$build"
build=$(realpath "$build")
export NORMD_PROGRAM=${NORMD_PROGRAM:-$build/normd}
venv=$build/python-venv

fingerprint() { # of the files' names and contents
  find "$@" -type f ! -path '*/__pycache__/*' ! -name '*_pb2.py*' -print0 | sort -z | xargs -0 sha256sum | sha256sum
}

environment=$(fingerprint client/python/pyproject.toml)
if [[ $(cat "$venv/environment" 2>/dev/null) != "$environment" ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "./client/python[test]"
  echo "$environment" >"$venv/environment"
  fingerprint client/python proto/normd >"$venv/package"
fi
package=$(fingerprint client/python proto/normd)
if [[ $(cat "$venv/package") != "$package" ]]; then
  "$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps ./client/python
  echo "$package" >"$venv/package"
fi
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/client/python "$@"
