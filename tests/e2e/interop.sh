#!/usr/bin/env bash
# Callers that are not ours, against normd with either transport: the newest grpcio of PyPI, curl and h2load.
#   tests/e2e/interop.sh [--build-dir=build/release] [UNITTEST-ARGUMENT...]
# The environment (BUILD/interop-venv) is made anew when its requirements change; `rm -r` it for what is newest today.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build/release
if [[ ${1:-} == --build-dir=* ]]; then
  build=${1#*=}
  shift
fi
source tests/support/cost.sh

build_normd() {
  ./deploy/quickstart.sh --configure-only --build-dir="$build"
  cmake --build "$build" --target normd
}
if [[ ! -x $build/normd ]]; then measure build build_normd; fi
build=$(realpath "$build")
requirements=tests/e2e/interop/requirements.txt
venv=$build/interop-venv
make_environment() {
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
  cp "$requirements" "$venv/installed.txt"
}
if ! cmp -s "$requirements" "$venv/installed.txt"; then measure environment make_environment; fi
stubs=$build/interop-stubs
rm -rf "$stubs" && mkdir -p "$stubs"
"$venv/bin/python" -m grpc_tools.protoc --proto_path=proto --python_out="$stubs" --grpc_python_out="$stubs" \
  proto/normd/v1/*.proto

export NORMD_PROGRAM=$build/normd PYTHONPATH=$stubs PYTHONDONTWRITEBYTECODE=1
status=0
for transport in native grpc; do
  export NORMD_TEST_TRANSPORT=$transport
  measure "$transport" "$venv/bin/python" -m unittest discover -s tests/e2e/interop -p '*_test.py' "$@" || status=1
done
echo
"$venv/bin/pip" list --disable-pip-version-check 2>/dev/null | grep -E '^(grpcio|protobuf) '
print_costs
exit "$status"
