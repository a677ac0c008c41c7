#!/usr/bin/env bash
# Runs the tests of normd-golden (kernels/python) in a virtual environment of the build folder, with the library of the
# build folder: nothing is compiled.
#   tests/kernels/python/run.sh [--build-dir=build/release] [PYTEST-ARGUMENT...]
# The library is BUILD/kernels/python/libnormd_golden.so, or the one that NORMD_GOLDEN_LIBRARY names.
set -euo pipefail
cd "$(dirname "$0")/../../.."

build=build/release
if [[ ${1:-} == --build-dir=* ]]; then
  build=${1#*=}
  shift
fi
build=$(realpath "$build")
export NORMD_GOLDEN_LIBRARY=${NORMD_GOLDEN_LIBRARY:-$build/kernels/python/libnormd_golden.so}
export NORMD_GOLDEN_BUILD=$build
venv=$build/golden-venv

wanted=$(sha256sum kernels/python/pyproject.toml tests/kernels/python/run.sh)
if [[ $(cat "$venv/environment" 2>/dev/null) != "$wanted" ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check ml_dtypes mpmath mypy numpy pytest
  echo "$wanted" >"$venv/environment"
fi
export PYTHONPATH=$PWD/kernels/python/src PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider -p normd_golden.pytest_plugin tests/kernels/python "$@"
