#!/usr/bin/env bash
# Runs the tests of normd-golden (kernels/python) in a virtual environment of the build folder, with the library of the
# build folder: nothing is compiled.
#   tests/kernels/python/run.sh [--build-dir=build/release] [--torch | --frameworks] [PYTEST-ARGUMENT...]
# --torch       in an environment with Debian's python3-torch, whose tests are skipped without it.
# --frameworks  torch, jax, ONNX Runtime, oneDNN, transformers, Liger and Triton's interpreter as they are, in an
#               environment of 6 GB; prints the figures of the tables in kernels/python/README.md.
# The library is BUILD/kernels/python/libnormd_golden.so, or the one that NORMD_GOLDEN_LIBRARY names.
set -euo pipefail
cd "$(dirname "$0")/../../.."

build=build/release
if [[ ${1:-} == --build-dir=* ]]; then
  build=${1#*=}
  shift
fi
build=$(realpath "$build")
python=python3 options=() venv=$build/golden-venv packages=(ml_dtypes mpmath mypy numpy onnx pytest)
if [[ ${1:-} == --torch ]]; then
  # That torch knows numpy 1 alone, which is Debian's; newer ml_dtypes need numpy 2.
  python=/usr/bin/python3 options=(--system-site-packages) venv=$build/golden-torch-venv
  packages=("ml_dtypes<0.5" mpmath mypy pytest)
  shift
fi
tests=(tests/kernels/python --ignore=tests/kernels/python/frameworks)
if [[ ${1:-} == --frameworks ]]; then
  venv=$build/golden-frameworks-venv
  packages=(jax liger-kernel ml_dtypes numpy onednn-cpu-gomp onnx onnxruntime pytest torch transformers triton)
  tests=(tests/kernels/python/frameworks)
  export NORMD_GOLDEN_FRAMEWORKS=1 TRITON_INTERPRET=1 JAX_PLATFORMS=cpu
  shift
fi
export NORMD_GOLDEN_LIBRARY=${NORMD_GOLDEN_LIBRARY:-$build/kernels/python/libnormd_golden.so}
export NORMD_GOLDEN_BUILD=$build

wanted=$(sha256sum kernels/python/pyproject.toml tests/kernels/python/run.sh)
if [[ $(cat "$venv/environment" 2>/dev/null) != "$wanted" ]]; then
  rm -rf "$venv"
  "$python" -m venv "${options[@]}" "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
  echo "$wanted" >"$venv/environment"
fi
export PYTHONPATH=$PWD/kernels/python/src PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" -m pytest -q -rs -p no:cacheprovider -p normd_golden.pytest_plugin "${tests[@]}" "$@"
