#!/usr/bin/env bash
# Runs the tests and the bench of the CUDA backend on the GPU of this machine, from what tests/device/pack.sh gathered:
# a driver is all that the machine needs.
#   tests/device/run.sh [first|test|sanitize|bench|all] [--pack=DIR] [--save=DIR] [--call=N] [--json=FILE] [--full]
#                       [--only=REGEX] [--check=R] [--more]
# first      a new kind of GPU's first half hour: three calls of under ten minutes, one after the other, or the one that
#            --call names. 1: hazards, that is clusters of blocks and large shared memory, then memcheck and racecheck
#            over them; 2: test; 3: bench. A step that fails or runs out of its time stops no other one.
# test       cuda_test: the real kernels beside the CPU backend, byte for byte.
# sanitize   compute-sanitizer's memcheck and racecheck over a part of them, if the tool is there and the machine lets it.
# bench      bench_cuda, beside PyTorch where NORMD_PEERS_PYTHON (python3 by default) has one with CUDA.
# all        the three, one after the other; the default.
# emulated   device_test: the kernels' sources on the CPU, which needs no GPU. What passes here is emulated.
# --pack     the packed folder; this one, or build/device-pack, by default.
# --save     keeps every log here, and after each step the summary (summary.txt, to which calls add) and what --json
#            has (result.json, or call-N.json); `first` saves in device-results unless told otherwise.
# --json     the summary and the bench's figures, for programs.
# --full     the long tests, too (18 GiB of memory).
# --only, --check, --more  of the bench: shapes by name; fails below R times a floor; shapes beyond the standard table.
# A summary comes last. What cannot be run is "NOT RUN: why". Exit status: 0 all that ran has passed, 1 something failed,
# 3 there is no usable device.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

part=all json="" pack="" save="" call="" bench_arguments=() more=()
while [[ $# -gt 0 ]]; do
  case $1 in
    first | test | sanitize | bench | all | emulated) part=$1 ;;
    --call=[123]) call=${1#*=} ;;
    --save=*) save=$(realpath -m "${1#*=}") ;;
    --pack=*) pack=$(realpath -m "${1#*=}") ;;
    --json=*) json=$(realpath -m "${1#*=}") ;;
    --full) export NORMD_TEST_FULL=1 ;;
    --only=* | --check=*) bench_arguments+=("$1") ;;
    --more) more=(--more) ;;
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
if [[ -n $call && $part != first ]]; then
  echo "$0: --call is for first" >&2
  exit 2
fi
# Seconds that a step may take.
hazards_limit=3600 sanitizer_limit=1200 test_limit=3600 peers_limit=3600 bench_limit=3600
if [[ $part == first ]]; then
  save=${save:-$(realpath -m device-results)}
  hazards_limit=120 sanitizer_limit=210 test_limit=570 peers_limit=280 bench_limit=280
fi
if [[ -n $save ]]; then
  mkdir -p "$save"
  work=$save
  json=${json:-$save/$([[ -n $call ]] && echo "call-$call" || echo result).json}
else
  work=$(mktemp -d "${TMPDIR:-/tmp}/normd-device.XXXXXX")
  trap 'rm -rf "$work"' EXIT
fi

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

verdict() {  # PART TEXT
  names+=("$1")
  verdicts+=("$2")
  echo "--- $1: $2"
  [[ -z $save ]] || printf '%-10s %s\n' "$1" "$2" >>"$save/summary.txt"
  [[ -z $json ]] || write_json
}

# "N passed, N failed, N skipped" of GoogleTest's output.
counts() {
  local passed failures skipped
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
  failures=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
  echo "${passed:-0} passed, ${failures:-0} failed, ${skipped:-0} skipped"
}

run_tests() {  # PART PROGRAM SECONDS [FILTER]
  local status=0
  with_libraries timeout "--kill-after=10" "$3" -- "$2" "--gtest_filter=${4:-*}" >"$work/$1.log" 2>&1 || status=$?
  { grep -v -e '^\[ RUN' -e '^\[       OK' "$work/$1.log" || true; } | tail -n 60
  if [[ $status -eq 0 && $(counts "$work/$1.log") != "0 passed"* ]]; then
    verdict "$1" "passed: $(counts "$work/$1.log")"
  else
    failed=1
    verdict "$1" "FAILED with status $status: $(counts "$work/$1.log")"
  fi
}

# What an emulator cannot judge, in seconds.
hazards='GpuHazardsTest.*'
# Cases small enough for a tool that slows kernels down by a hundred: rows of every kind, columns, residual streams.
sanitized='GpuShapesTest.ChannelsLastGroups*:GpuDeviceMemoryTest.*:GpuRowsTest.*:*BytesOfEveryCaseAreThoseOfTheCpu/power_norm'
[[ $part != first ]] || sanitized=$hazards
run_sanitizer() {  # memcheck | racecheck
  local tool log=$work/$1.log status=0 summary
  tool=$(command -v compute-sanitizer || compgen -G '/usr/local/cuda*/bin/compute-sanitizer' | head -n 1 || true)
  if [[ -z $tool ]]; then
    verdict "$1" "NOT RUN: no compute-sanitizer on this machine"
    return
  fi
  with_libraries timeout "$sanitizer_limit" "$tool" "--tool=$1" --error-exitcode=9 -- cuda_test "--gtest_filter=$sanitized" \
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
  rm -f "$work/peers.json" "$work/bench.json"
  with_libraries bench_cuda --list "${more[@]}" >"$work/shapes.json" 2>&1 || true
  timeout --kill-after=10 "$peers_limit" "${NORMD_PEERS_PYTHON:-python3}" "$pack/peers.py" "$work/shapes.json" \
    "$work/peers.json" >"$work/peers.log" 2>&1 || status=$?
  # Each shape that was measured is in the file, even if there was no time for all of them.
  [[ ! -s $work/peers.json ]] || peers=("--peers=$work/peers.json")
  if [[ $status -eq 0 ]]; then
    verdict peers "measured"
  elif [[ ($status -eq 124 || $status -eq 137) && ${#peers[@]} -gt 0 ]]; then
    verdict peers "measured as far as $peers_limit s went: $(tail -n 1 "$work/peers.log")"
  else
    verdict peers "$(grep -m 1 'NOT RUN' "$work/peers.log" || echo "NOT RUN: $(tail -n 1 "$work/peers.log")")"
  fi
  status=0
  with_libraries timeout "--kill-after=10" "$bench_limit" -- bench_cuda "--commit=$(cat "$pack/commit")" "--json=$work/bench.json" "${peers[@]}" \
    "${bench_arguments[@]}" "${more[@]}" >"$work/bench.log" 2>&1 || status=$?
  cat "$work/bench.log"
  if [[ $status -ne 0 ]]; then failed=1; fi
  verdict bench "$([[ $status -eq 0 ]] && echo measured || echo "FAILED with status $status"): $(tail -n 1 "$work/bench.log")"
}

parts=("$part")
case $part$call in
  all) parts=(test sanitize bench) ;;
  first) parts=(hazards sanitize test bench) ;;
  first1) parts=(hazards sanitize) ;;
  first2) parts=(test) ;;
  first3) parts=(bench) ;;
esac
status=0
device=$(with_libraries bench_cuda --probe 2>&1) || status=$?
echo "device: $device"
if [[ -n $save ]]; then
  { date -u '+%F %T UTC' && echo "device: $device, commit $(cat "$pack/commit")"; } >>"$save/summary.txt"
  nvidia-smi -q >"$save/nvidia-smi.log" 2>&1 || true
fi
for one in "${parts[@]}"; do
  if [[ $one == emulated ]]; then
    run_tests emulated device_test "$test_limit"
  elif [[ $status -eq 3 ]]; then
    verdict "$one" "NOT RUN: ${device#NOT RUN: }"
  elif [[ $status -ne 0 ]]; then
    failed=1
    verdict "$one" "FAILED: bench_cuda --probe ended with status $status"
  else
    case $one in
      hazards) run_tests hazards cuda_test "$hazards_limit" "$hazards" ;;
      test) run_tests test cuda_test "$test_limit" ;;
      sanitize) run_sanitizer memcheck && run_sanitizer racecheck ;;
      bench) run_bench ;;
    esac
  fi
done

echo
echo "=== summary: $device, commit $(cat "$pack/commit")"
for i in "${!names[@]}"; do printf '%-10s %s\n' "${names[i]}" "${verdicts[i]}"; done
[[ $failed -eq 0 ]] || exit 1
[[ $status -eq 0 || $part == emulated ]] || exit 3
