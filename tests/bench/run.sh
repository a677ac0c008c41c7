#!/usr/bin/env bash
# Builds Release and measures one suite against its floors.
#   tests/bench/run.sh SUITE [--quick] [--json FILE] [--check R] [--reached FILE] [--only=REGEX] [--build-dir DIR]
#                      [--peers=PYTHON] [--max_isa=ISA] [--before=PROGRAM] [--rounds=N]
# SUITE        kernels: normd's kernels, EXACT and FAST, against a copy of the same bytes, oneDNN and, with --peers,
#              PyTorch, on the same buffers. 15 minutes; --quick: 90 s and few shapes from DRAM.
#              store: the session store against bare loops over SQLite and libpq, and a million sessions.
#              datapath: requests/s and CPU of normd against a bare gRPC echo and generated protobuf services; latency
#              after a silence, memory under large requests, goodput in overload. 12 minutes; --quick: 2 minutes.
#              metrics: what it costs to record a request in the metrics. 10 s.
#              transport: the native transport against gRPC's, an echo on each and normd on each, with a gRPC client and
#              with h2load (Debian's package nghttp2-client); memory of unfinished messages and of idle connections, and
#              small calls beside large streams. 9 minutes; --quick: 2 minutes.
#              statistics: a thousand contributors to one session that counts samples, and ten thousand watchers of it.
#              3 minutes; --quick: 40 s.
#              operations: what TLS, tokens and policy, traces, many connections and a scrape cost. 10 minutes; --quick: 2.
# --quick      shorter rounds, fewer of them: for CI and for a first look.
# --json       everything that was measured, for programs.
# --check      exit status 1 when a figure is below R times its floor, or above what it may be at most divided by R, in
#              three runs one after the other (operations: in one); the machines of CI are shared and take 0.7.
# --reached    all but operations: a record of earlier runs, such as tests/bench/reached.json; --check takes
#              what was reached there instead of a floor that was not. tests/bench/record.py writes it from --json.
# --only       what has the regular expression in its name, a comma meaning "or". kernels: "REGIME NAME" as in "^L3 LN f32"
#              or "^DRAM", threads, operations, roots. store: rows by name, many sessions. datapath: inline, calls, idle,
#              memory, overload, shared, or more of a name, as in "inline tcp unary". transport: rows by name, as in
#              "^echo (unary|h2load) 4 KiB", unfinished, idle connections, small beside large. statistics: contributors,
#              watchers, or more of a row's name. operations: handshakes, tls, access, traces, connections, scrape.
# --rounds     operations: how many rounds, instead of the usual number.
# --build-dir  where to build, build/release by default.
# --peers      kernels: the python of a virtual environment that has torch (some gigabytes, `python3 -m venv DIR &&
#              DIR/bin/pip install torch numpy`).
# --max_isa    kernels: the instruction set, as normd's option of this name: avx2 on a machine that has AVX-512.
# --before     a program of an earlier build. datapath takes a bench_datapath and compares small calls with it, too;
#              operations (traces) takes a normd; transport takes a bench_transport, whose native transport then stands in
#              the place of gRPC's.
# Tables come first; the last line says which floors hold. Files are made in TMPDIR, /tmp by default: it should be on the
# disk that a server would use.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/../.."

usage() {
  sed -n '2,/^[^#]/s/^# \?//p' tests/bench/run.sh >&2
  exit 2
}

suite=${1:-}
[[ $# -eq 0 ]] || shift
[[ " kernels store datapath transport metrics statistics operations " == *" $suite "* ]] || usage

build=build/release arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick | --check=* | --only=* | --rounds=* | --max_isa=*) arguments+=("$1") ;;
    --json | --check | --reached | --only | --rounds | --max_isa | --build-dir)
      [[ $# -ge 2 ]] || usage
      set -- "$1=$2" "${@:3}"
      continue
      ;;
    --build-dir=*) build=${1#*=} ;;
    # Files of the caller's folder; a virtual environment's python is a link that must stay one.
    --json=* | --reached=* | --peers=* | --before=*) arguments+=("${1%%=*}=$(cd "$caller" && realpath -ms "${1#*=}")") ;;
    *) usage ;;
  esac
  shift
done

commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
options=(-G Ninja -DNORMD_TESTS=ON -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Release)
if command -v ccache >/dev/null; then
  # As tests/run.sh says it: another spelling would compile everything anew.
  options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$(command -v ccache)" "-DCMAKE_CUDA_COMPILER_LAUNCHER=$(command -v ccache)")
fi
targets=("bench_$suite")
if [[ $suite == operations ]]; then targets=(normd normload); fi
log=$(mktemp "${TMPDIR:-/tmp}/normd-bench-build-XXXXXX")
{
  cmake -S . -B "$build" -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$(realpath -m "$build")" "${options[@]}"
  cmake --build "$build" --target "${targets[@]}"
} >"$log" 2>&1 || {
  cat "$log" >&2
  exit 1
}
rm -f "$log"

# A PostgreSQL of the run's own, unless one is named: what else it does would be measured, too.
if [[ $suite == store && -z ${NORMD_TEST_POSTGRES:-} ]]; then
  folder=$(mktemp -d "${TMPDIR:-/tmp}/normd-bench-postgres-XXXXXX")
  trap 'tests/support/postgres.sh stop "$folder" && rm -rf "$folder"' EXIT
  NORMD_TEST_POSTGRES=$(tests/support/postgres.sh start "$folder")
  export NORMD_TEST_POSTGRES
fi
[[ $suite != store ]] || echo "file system: $(stat -f -c %T "${TMPDIR:-/tmp}")"

if [[ $suite == operations ]]; then
  # The package normd creates the sessions; the environment is that of its tests.
  ./tests/client/python/run.sh "--build-dir=$build" --collect-only >/dev/null
  exec "$build/python-venv/bin/python" tests/bench/operations/operations.py "--normd=$build/normd" \
    "--normload=$build/normload" "--commit=$commit" "${arguments[@]}"
fi
"$build/bench_$suite" "--commit=$commit" "${arguments[@]}"
