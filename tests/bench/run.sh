#!/usr/bin/env bash
# Builds Release and measures one suite against its floors.
#   tests/bench/run.sh SUITE [--quick] [--json FILE] [--check R] [--build-dir DIR] [--NAME=VALUE ...]
# SUITE        kernels: normd's kernels, EXACT and FAST, against a copy of the same bytes, oneDNN and, with --peers,
#              PyTorch, on the same buffers. 15 minutes; --quick: 90 s and few shapes from DRAM.
#              store: the session store against bare loops over SQLite and libpq, and a million sessions.
#              datapath: requests/s and CPU of normd against a bare gRPC echo and generated protobuf services; latency
#              after a silence, memory under large requests, goodput in overload. 12 minutes; --quick: 2 minutes.
# --quick      shorter rounds, fewer of them: for CI and for a first look.
# --json       everything that was measured, for programs.
# --check      exit status 1 when a figure is below R times its floor, or above what it may be at most divided by R; the
#              machines of CI are shared and take 0.7.
# --build-dir  where to build, build/release by default.
# --NAME=VALUE what to measure, for a closer look. kernels: --only=REGEX of "REGIME NAME" as in "^L3 LN f32" or "^DRAM",
#              --rounds=N, and --peers=PYTHON: the python of a virtual environment that has torch (some gigabytes,
#              `python3 -m venv DIR && DIR/bin/pip install torch numpy`). store: --only=REGEX of rows. datapath:
#              --only=inline,calls,idle,memory,overload,shared; of inline --payloads=4KiB,64KiB,1MiB,16MiB --in_flight=1,4,16
#              --transports=tcp,unix --modes=unary,stream --opponents=echo,normd,bytes,bytes_stock,bytes_sync,floats
#              --before=PROGRAM, a bench_datapath of an earlier build that calls is raced against, --rounds=7
#              --round=400ms and NORMD_QUEUES=N in the environment: completion queues of echo and normd.
# Tables come first; the last line says which floors hold. Files are made in TMPDIR, /tmp by default: it should be on the
# disk that a server would use.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/../.."

usage() {
  sed -n '2,22s/^# \?//p' tests/bench/run.sh >&2
  exit 2
}

suite=${1:-}
[[ $# -eq 0 ]] || shift
case $suite in
  kernels | store | datapath) ;;
  service)
    echo "$0: the suite $suite does not exist yet; there are: kernels, store, datapath" >&2
    exit 2
    ;;
  *) usage ;;
esac

build=build/release arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick) arguments+=("$1") ;;
    --json | --check | --build-dir)
      [[ $# -ge 2 ]] || usage
      set -- "$1=$2" "${@:3}"
      continue
      ;;
    --json=*) arguments+=("--json=$(cd "$caller" && realpath -m "${1#*=}")") ;;
    --build-dir=*) build=${1#*=} ;;
    --check=* | --only=*) arguments+=("$1") ;;
    --peers=*)
      [[ $suite == kernels ]] || usage
      arguments+=("--peers=$(cd "$caller" && realpath -ms "${1#*=}")")
      ;;
    --rounds=*)
      [[ $suite != store ]] || usage
      arguments+=("$1")
      ;;
    --before=*)
      [[ $suite == datapath ]] || usage
      arguments+=("--before=$(cd "$caller" && realpath "${1#*=}")")
      ;;
    --payloads=* | --in_flight=* | --transports=* | --modes=* | --opponents=* | --round=*)
      [[ $suite == datapath ]] || usage
      arguments+=("$1")
      ;;
    *) usage ;;
  esac
  shift
done

commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
options=(-G Ninja -DNORMD_TESTS=ON -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Release)
if command -v ccache >/dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi
{
  cmake -S . -B "$build" -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$(realpath -m "$build")" "${options[@]}"
  cmake --build "$build" --target "bench_$suite"
} >"${TMPDIR:-/tmp}/normd-bench-build.$$" 2>&1 || {
  cat "${TMPDIR:-/tmp}/normd-bench-build.$$" >&2
  exit 1
}
rm -f "${TMPDIR:-/tmp}/normd-bench-build.$$"

# A PostgreSQL of the run's own, unless one is named: what else it does would be measured, too.
if [[ $suite == store && -z ${NORMD_TEST_POSTGRES:-} ]]; then
  folder=$(mktemp -d "${TMPDIR:-/tmp}/normd-bench-postgres-XXXXXX")
  trap 'tests/support/postgres.sh stop "$folder" && rm -rf "$folder"' EXIT
  NORMD_TEST_POSTGRES=$(tests/support/postgres.sh start "$folder")
  export NORMD_TEST_POSTGRES
fi

"$build/bench_$suite" "--commit=$commit" "${arguments[@]}"
