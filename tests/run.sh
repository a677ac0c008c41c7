#!/usr/bin/env bash
# Installs what is needed, builds, and runs everything under CTest.
#   tests/run.sh [--sanitize=address|thread] [--full] [--filter=REGEX] [--except=REGEX] [--build-dir=DIR] [--jobs=N]
#                [--cuda-arch=WHICH] [--separate] [--without=LIST] [--configure-only]
# --sanitize  address: clang with ASan, UBSan and the fuzzers, in build/asan; thread: TSan over the server and end to
#             end, in build/tsan. Without it: Release with g++, in build/release. What these leave out, and why, is in
#             tests/sanitizers.cmake.
# --without   kernels, client, golden, or several with commas: neither builds nor runs these tests, which link nothing of
#             the server.
# --full      the long versions of the tests that have one (NORMD_TEST_FULL=1) and 10 minutes a fuzzer.
# --filter    only the tests whose names match.
# --except    none of the tests whose names match.
# --cuda-arch which GPUs to compile CUDA kernels for, where nvcc is on the PATH: a compute capability without its point
#             (the default: 90), native (this machine's), all (8.0, 8.9, 9.0 and PTX), or none.
# --separate  every source by itself. Without it sources are compiled in batches that read the headers once: a third of
#             the time for everything, but a change of one file compiles its batch.
# --configure-only  end before anything is compiled.
# CTest's summary comes last, after what each step cost; a copy is in DIR/summary.txt, the whole output in DIR/Testing.
set -euo pipefail
cd "$(dirname "$0")/.."

lists=(build test)
sanitize="" filter="" except="" build="" jobs=$(nproc) cuda_arch=90 unity=ON without="" configure_only=""
while [[ $# -gt 0 ]]; do
  case $1 in
    --sanitize=address | --sanitize=thread) sanitize=${1#*=} ;;
    --full)
      export NORMD_TEST_FULL=1 NORMD_FUZZ_SECONDS=600
      lists+=(full)
      ;;
    --filter=*) filter=${1#*=} ;;
    --filter) filter=${2:?--filter needs an expression} && shift ;;
    --except=*) except=${1#*=} ;;
    --build-dir=*) build=${1#*=} ;;
    --build-dir) build=${2:?--build-dir needs a folder} && shift ;;
    --jobs=*) jobs=${1#*=} ;;
    --cuda-arch=*) cuda_arch=${1#*=} ;;
    --separate) unity=OFF ;;
    --without=*) without=${1#*=} ;;
    --configure-only) configure_only=1 ;;
    *)
      sed -n '2,/^[^#]/s/^# \?//p' "$0" >&2
      exit 2
      ;;
  esac
  shift
done

source tests/support/cost.sh
measure packages ./deploy/install-packages.sh "${lists[@]}"

options=(-G Ninja -DNORMD_TESTS=ON "-DCMAKE_UNITY_BUILD=$unity" -DCMAKE_UNITY_BUILD_BATCH_SIZE=24
  "-DNORMD_TEST_WITHOUT=${without//,/;}")
case $sanitize in
  address)
    build=${build:-build/asan}
    # fuzzer-no-link: coverage counters, so that the fuzzers see the code that they drive.
    options+=(-DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_BUILD_TYPE=RelWithDebInfo -DNORMD_SANITIZE=address -DNORMD_CUDA=OFF
      "-DCMAKE_CXX_FLAGS=-fsanitize=fuzzer-no-link" "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1")
    export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1
    export UBSAN_OPTIONS=print_stacktrace=1
    ;;
  thread)
    build=${build:-build/tsan}
    options+=(-DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_BUILD_TYPE=RelWithDebInfo -DNORMD_SANITIZE=thread -DNORMD_CUDA=OFF
      "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1")
    export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1 second_deadlock_stack=1"
    # What libraries without instrumentation do among themselves is theirs; every access of our code is still seen.
    TSAN_OPTIONS+=" ignore_noninstrumented_modules=1"
    ;;
  *)
    build=${build:-build/release}
    options+=(-DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Release)
    if [[ $cuda_arch == none ]]; then
      options+=(-DNORMD_CUDA=OFF)
    else
      options+=(-DNORMD_CUDA=ON "-DNORMD_CUDA_ARCH=$cuda_arch")
    fi
    ;;
esac
symbolizer=$(command -v llvm-symbolizer-14 || true)
export ASAN_SYMBOLIZER_PATH=$symbolizer
# Said in either case: the folder may have been configured by another command.
ccache=$(command -v ccache || true)
options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$ccache" "-DCMAKE_CUDA_COMPILER_LAUNCHER=$ccache")

measure configure cmake -S . -B "$build" -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$(realpath -m "$build")" "${options[@]}"
if [[ -n $configure_only ]]; then exit; fi
measure build cmake --build "$build" --parallel "$jobs"

# The shared session store, on a private socket, as a user without rights.
postgres=$(mktemp -d "${TMPDIR:-/tmp}/normd-postgres.XXXXXX")
chmod 711 "$postgres"
stop_postgres() {
  ./tests/support/postgres.sh stop "$postgres/cluster" >/dev/null 2>&1 || true
  rm -rf "$postgres"
}
trap stop_postgres EXIT
NORMD_TEST_POSTGRES=$(./tests/support/postgres.sh start "$postgres/cluster")
export NORMD_TEST_POSTGRES

selection=()
left_out=$(sed -n 's/^NORMD_LEFT_OUT_LABELS:INTERNAL=//p' "$build/CMakeCache.txt")
if [[ -n $left_out ]]; then selection=(--label-exclude "^($left_out)$"); fi
if [[ -n $filter ]]; then selection+=(-R "$filter"); fi
if [[ -n $except ]]; then selection+=(-E "$except"); fi
status=0
run_tests() {
  # Most tests of the server wait: 1375 of them took 188 s of the clock and 34 s of CPU, one at a time. Those that compute
  # count for two (PROCESSORS in CMake).
  ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$((2 * jobs))" "${selection[@]}" |
    tee "$build/ctest.log"
}
measure tests run_tests || status=$?
# From the verdict to the end: times by label, the list of failures.
sed -n '/tests passed,/,$p' "$build/ctest.log" >"$build/summary.txt"
echo
print_costs
exit "$status"
