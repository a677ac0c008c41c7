#!/usr/bin/env bash
# Builds Release and prints the tables of kernels/README.md's section "Accuracy".
#   tests/accuracy/run.sh [--quick] [--check] [--beside_slow_road=N] [--max_isa=ISA] [--build-dir DIR]
# --quick      a part of the cases: what CTest runs.
# --check      exit status 1 when an error is beyond its bound, or a result is wrongly rounded where none may be.
# --beside_slow_road  instead of the tables: N elements of every form and dtype beside what the slow road decides.
# --max_isa    the instruction set, as normd's option of this name.
# --build-dir  where to build, build/release by default.
# The table of well-known wrong answers needs PyTorch and ONNX Runtime: tests/accuracy/known_answers.py.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build/release arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick | --check | --max_isa=* | --beside_slow_road=*) arguments+=("$1") ;;
    --build-dir) build=${2:?--build-dir needs a folder} && shift ;;
    --build-dir=*) build=${1#*=} ;;
    *)
      sed -n '2,/^[^#]/s/^# \?//p' "$0" >&2
      exit 2
      ;;
  esac
  shift
done

options=(-G Ninja -DNORMD_TESTS=ON -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=g++)
# As tests/run.sh says it: another spelling would compile everything anew.
if command -v ccache >/dev/null; then options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$(command -v ccache)"); fi
cmake -S . -B "$build" -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$(realpath -m "$build")" "${options[@]}" >&2
cmake --build "$build" --target accuracy_report >&2
exec "$build/accuracy_report" "${arguments[@]}"
