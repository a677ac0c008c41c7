#!/usr/bin/env bash
# Runs the tests and the bench of the CUDA backend on the GPU of this machine, from what tests/device/pack.sh gathered:
# a driver is all that the machine needs.
#   tests/device/run.sh [test|sanitize|bench|all] [--pack=DIR] [--json=FILE] [--full] [--only=REGEX] [--check=R]
# test       cuda_test: the real kernels beside the CPU backend, byte for byte.
# sanitize   compute-sanitizer's memcheck and racecheck over a part of them, if the tool is there and the machine lets it.
# bench      bench_cuda, beside PyTorch where NORMD_PEERS_PYTHON (python3 by default) has one with CUDA.
# all        the three, one after the other; the default.
# emulated   device_test: the kernels' sources on the CPU, which needs no GPU. What passes here is emulated.
# --pack     the packed folder; this one, or build/device-pack, by default.
# --json     the summary and the bench's figures, for programs.
# --full     the long tests, too (18 GiB of memory).
# --only, --check  of the bench: shapes by name; fails below R times a floor.
# A summary comes last. What cannot be run is "NOT RUN: why". Exit status: 0 all that ran has passed, 1 something failed,
# 3 there is no usable device.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

part=all json="" pack="" bench_arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    test | sanitize | bench | all | emulated) part=$1 ;;
    --pack=*) pack=$(realpath -m "${1#*=}") ;;
    --json=*) json=$(realpath -m "${1#*=}") ;;
    --full) export NORMD_TEST_FULL=1 ;;
    --only=* | --check=*) bench_arguments+=("$1") ;;
    *)
      sed -n '2,/^[^#]/s/^# \?//p' "$0" >&2
      exit 2
      ;;
  esac
  shift
done
if [[ -z $pack ]]; then
  pack=$here
  [[ -d $pack/bin ]] || pack=$here/../../build/device-pack
fi
if [[ ! -x $pack/bin/bench_cuda ]]; then
  echo "$0: no programs in $pack: tests/device/pack.sh makes them" >&2
  exit 2
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/normd-device.XXXXXX")
trap 'rm -rf "$work"' EXIT

# With the machine's own glibc, or, where that is too old for the programs, with the one that was packed.
loader=()
if ! LD_LIBRARY_PATH=$pack/lib "$pack/bin/bench_cuda" --list >/dev/null 2>&1; then
  loader=("$(echo "$pack"/glibc/ld-linux*)" --library-path "$pack/glibc:$pack/lib")
fi
with_libraries() {  # [TOOL ARGUMENT... --] PROGRAM ARGUMENT...
  local tool=()
  if [[ " $* " == *" -- "* ]]; then
    while [[ $1 != -- ]]; do tool+=("$1") && shift; done
    shift
  fi
  local program=$1
  shift
  LD_LIBRARY_PATH=$pack/lib "${tool[@]}" "${loader[@]}" "$pack/bin/$program" "$@"
}

names=() verdicts=()
failed=0
verdict() {  # PART TEXT
  names+=("$1")
  verdicts+=("$2")
  echo "--- $1: $2"
}

# "N passed, N failed, N skipped" of GoogleTest's output.
counts() {
  local passed failures skipped
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
  failures=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
  echo "${passed:-0} passed, ${failures:-0} failed, ${skipped:-0} skipped"
}

run_tests() {  # PART PROGRAM
  local status=0
  with_libraries "$2" --gtest_brief=0 >"$work/$1.log" 2>&1 || status=$?
  grep -v -e '^\[ RUN' -e '^\[       OK' "$work/$1.log" | tail -n 60
  if [[ $status -eq 0 && $(counts "$work/$1.log") != "0 passed"* ]]; then
    verdict "$1" "passed: $(counts "$work/$1.log")"
  else
    failed=1
    verdict "$1" "FAILED with status $status: $(counts "$work/$1.log")"
  fi
}

# Cases small enough for a tool that slows kernels down by a hundred: rows of every kind, columns, residual streams.
sanitized='GpuDeviceMemoryTest.*:GpuRowsTest.*:*BytesOfEveryCaseAreThoseOfTheCpu/power_norm'
run_sanitizer() {  # memcheck | racecheck
  local tool log=$work/$1.log status=0 summary
  tool=$(command -v compute-sanitizer || compgen -G '/usr/local/cuda*/bin/compute-sanitizer' | head -n 1 || true)
  if [[ -z $tool ]]; then
    verdict "$1" "NOT RUN: no compute-sanitizer on this machine"
    return
  fi
  with_libraries timeout 1200 "$tool" "--tool=$1" --error-exitcode=9 -- cuda_test "--gtest_filter=$sanitized" \
    >"$log" 2>&1 || status=$?
  summary=$(grep -E '(ERROR|RACECHECK) SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//' || true)
  if [[ -z $summary || $status -eq 124 || ($status -eq 0 && $(counts "$log") == "0 passed"*) ]]; then
    verdict "$1" "NOT RUN: the tool ended with status $status: $(grep -v '^\[' "$log" | tail -n 3 | tr '\n' ' ')"
  elif [[ $status -eq 0 ]]; then
    verdict "$1" "passed: $summary; $(counts "$log")"
  else
    tail -n 60 "$log"
    failed=1
    verdict "$1" "FAILED with status $status: $summary; $(counts "$log")"
  fi
}

run_bench() {
  local status=0 peers=()
  with_libraries bench_cuda --list >"$work/shapes.json"
  if "${NORMD_PEERS_PYTHON:-python3}" "$pack/peers.py" "$work/shapes.json" "$work/peers.json" \
    >"$work/peers.log" 2>&1; then
    peers=("--peers=$work/peers.json")
    verdict peers "measured"
  else
    verdict peers "$(grep -m 1 'NOT RUN' "$work/peers.log" || echo "NOT RUN: $(tail -n 1 "$work/peers.log")")"
  fi
  with_libraries bench_cuda "--commit=$(cat "$pack/commit")" "--json=$work/bench.json" "${peers[@]}" \
    "${bench_arguments[@]}" >"$work/bench.log" 2>&1 || status=$?
  cat "$work/bench.log"
  if [[ $status -ne 0 ]]; then failed=1; fi
  verdict bench "$([[ $status -eq 0 ]] && echo measured || echo "FAILED with status $status"): $(tail -n 1 "$work/bench.log")"
}

quoted() {
  printf '"%s"' "$(tr '\n\t' '  ' <<<"$1" | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/ *$//')"
}
write_json() {
  local i
  {
    printf '{"device": %s, "commit": %s,\n "parts": {' "$(quoted "$device")" "$(quoted "$(cat "$pack/commit")")"
    for i in "${!names[@]}"; do
      printf '%s\n  %s: %s' "$([[ $i -eq 0 ]] || echo ,)" "$(quoted "${names[i]}")" "$(quoted "${verdicts[i]}")"
    done
    printf '},\n "bench": '
    if [[ -s $work/bench.json ]]; then cat "$work/bench.json"; else echo null; fi
    echo '}'
  } >"$json"
}

parts=("$part")
[[ $part != all ]] || parts=(test sanitize bench)
status=0
device=$(with_libraries bench_cuda --probe 2>&1) || status=$?
echo "device: $device"
for one in "${parts[@]}"; do
  if [[ $one == emulated ]]; then
    run_tests emulated device_test
  elif [[ $status -eq 3 ]]; then
    verdict "$one" "NOT RUN: ${device#NOT RUN: }"
  elif [[ $status -ne 0 ]]; then
    failed=1
    verdict "$one" "FAILED: bench_cuda --probe ended with status $status"
  else
    case $one in
      test) run_tests test cuda_test ;;
      sanitize) run_sanitizer memcheck && run_sanitizer racecheck ;;
      bench) run_bench ;;
    esac
  fi
done

echo
echo "=== summary: $device, commit $(cat "$pack/commit")"
for i in "${!names[@]}"; do printf '%-10s %s\n' "${names[i]}" "${verdicts[i]}"; done
[[ -z $json ]] || write_json
[[ $failed -eq 0 ]] || exit 1
[[ $status -eq 0 || $part == emulated ]] || exit 3
