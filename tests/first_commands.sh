#!/usr/bin/env bash
# Each of the README's two commands alone, in a fresh copy of the sources, with nvcc on the PATH and without, and with no
# ccache: whether it configures, whether one CUDA kernel compiles, whether the rest is known how to be built. Compiles next
# to nothing, so it is no test of the programs: .ci/run runs both commands to their ends besides.
#   tests/first_commands.sh
# Without nvcc on this machine half of it is NOT RUN, and says so.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/normd-first.XXXXXX")
trap 'rm -rf "$work"' EXIT

# All programs of this machine but these; nvcc finds its own files only where it really lies.
mkdir "$work/bin"
IFS=: read -r -a folders <<<"$PATH"
for folder in "${folders[@]}"; do
  ln -s "$folder"/* "$work/bin/" 2>/dev/null || true # the first one of a name counts
done
rm -f "$work/bin/ccache" "$work/bin/nvcc"
nvcc=$(command -v nvcc || true)
unset CUDACXX CUDA_PATH CXX CMAKE_CXX_COMPILER_LAUNCHER CMAKE_CUDA_COMPILER_LAUNCHER
readonly kernel=kernels/CMakeFiles/normd_cuda_kernels.dir/cuda/elementwise.cu.o

fail() {
  echo "first_commands: $1: $2" >&2
  return 1
}

# one NAME PATH "COMMAND" "TARGET..."
one() {
  local name=$1 path=$2 command=$3 targets=$4 tree=$work/$1
  mkdir "$tree"
  git ls-files -z -co --exclude-standard | xargs -0 cp --parents -t "$tree"
  cd "$tree"
  export PATH=$path
  # Words of a command, words of a list.
  # shellcheck disable=SC2086
  $command --configure-only >configured 2>&1 || { tail -n 20 configured && fail "$name" "does not configure"; }
  if [[ $name == *-with-nvcc ]]; then
    grep "^-- CUDA: " configured || fail "$name" "does not say what the CUDA kernels cost"
    ninja -C build/release "$kernel" >compiled 2>&1 || { tail -n 20 compiled && fail "$name" "a kernel does not compile"; }
    grep -q "bytes stack frame" "build/release/$kernel.report" || fail "$name" "the compiler's report is not kept"
  else
    ! ninja -C build/release -t query "$kernel" >/dev/null 2>&1 || fail "$name" "compiles CUDA kernels without nvcc"
  fi
  # Under another name, so that it is not made anew first, with which a dry run would end.
  cp build/release/build.ninja build/release/plan.ninja
  # shellcheck disable=SC2086
  ninja -C build/release -f plan.ninja -n $targets >planned 2>&1 || { tail -n 20 planned && fail "$name" "cannot be built"; }
  if [[ $name == quickstart* ]] && grep -E '^(GTest_DIR|_Python3_EXECUTABLE)' build/release/CMakeCache.txt; then
    fail "$name" "looks for what only the tests need"
  fi
  echo "$name: configured, $(tail -n 1 planned | sed -n 's/^\[\([0-9]*\).*/\1/p') steps to build"
}

started=()
start() {
  (one "$@") &
  started+=($!)
}
start quickstart "$work/bin" "./deploy/quickstart.sh" "normd normctl normload"
start tests "$work/bin" "./tests/run.sh" "all"
if [[ -n $nvcc ]]; then
  with_nvcc=$work/bin:$(dirname "$(realpath "$nvcc")")
  start quickstart-with-nvcc "$with_nvcc" "./deploy/quickstart.sh --cuda-arch=90" "normd normctl normload"
  start tests-with-nvcc "$with_nvcc" "./tests/run.sh" "all"
else
  echo "first_commands: NOT RUN: no nvcc on this machine, so neither command was tried with it"
fi
status=0
for process in "${started[@]}"; do wait "$process" || status=1; done
exit "$status"
