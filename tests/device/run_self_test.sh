#!/usr/bin/env bash
# A test of tests/device/run.sh with planted programs in place of the packed ones, since few machines have a GPU: what
# fails fails, what cannot run is said to be NOT RUN, and nothing that did not run passes.
set -euo pipefail
cd "$(dirname "$0")"

folder=$(mktemp -d "${TMPDIR:-/tmp}/normd-run-test.XXXXXX")
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bin" "$folder/lib" "$folder/tools"
cp run.sh peers.py "$folder"
echo planted >"$folder/commit"
cat >"$folder/bin/bench_cuda" <<'PROGRAM'
#!/bin/sh
for argument; do
  case $argument in
    --list) echo '[]' && exit 0 ;;
    --probe) echo "NOT RUN: or a device" && exit "${PROBE:-0}" ;;
    --json=*) echo '{}' >"${argument#*=}" ;;
  esac
done
echo "floors: 1 met, 0 short"
exit "${BENCH:-0}"
PROGRAM
cat >"$folder/bin/cuda_test" <<'PROGRAM'
#!/bin/sh
[ -z "${SILENT:-}" ] || exit 1
echo "[  PASSED  ] ${PASSED:-5} tests."
exit "${TEST:-0}"
PROGRAM
cat >"$folder/tools/compute-sanitizer" <<'PROGRAM'
#!/bin/sh
[ -z "${REFUSE:-}" ] || { echo "refused" && exit 1; }
shift 2
"$@"
echo "========= ERROR SUMMARY: 0 errors"
exit "${SANITIZER:-0}"
PROGRAM
chmod +x "$folder"/bin/* "$folder"/tools/*

wrong=0
expect() {  # STATUS TEXT NAME=VALUE: run.sh ends with STATUS and its summary has TEXT
  local status=0
  env "$3" NORMD_PEERS_PYTHON=false "PATH=$folder/tools:$PATH" "$folder/run.sh" all "--json=$folder/out.json" \
    >"$folder/log" 2>&1 || status=$?
  if [[ $status -ne $1 ]] || ! sed -n '/=== summary/,$p' "$folder/log" | grep -q "$2" ||
    ! python3 -m json.tool "$folder/out.json" >/dev/null; then
    wrong=1
    echo "with $3: status $status, not $1, or no '$2' in:"
    cat "$folder/log"
  fi
}
expect 0 '^test  *passed: 5 passed' NOTHING=1
expect 0 '^racecheck  *passed' NOTHING=1
expect 0 '^peers  *NOT RUN' NOTHING=1
expect 0 '^bench  *measured: floors: 1 met' NOTHING=1
expect 1 '^test  *FAILED with status 1' TEST=1
expect 1 '^test  *FAILED with status 0: 0 passed' PASSED=0
expect 1 '^bench  *measured' SILENT=1
expect 0 '^memcheck  *NOT RUN: .*refused' REFUSE=1
expect 1 '^memcheck  *FAILED with status 9' SANITIZER=9
expect 1 '^bench  *FAILED with status 1' BENCH=1
expect 3 '^test  *NOT RUN: or a device' PROBE=3
expect 1 '^test  *FAILED: .*--probe' PROBE=139
# The first half hour: every step runs whatever became of those before, and leaves its log and the summary.
expect_first() {  # CALL STATUS STEPS NAME=VALUE
  local status=0 steps
  rm -rf "$folder/saved"
  env "$4" NORMD_PEERS_PYTHON=false "PATH=$folder/tools:$PATH" "$folder/run.sh" first ${1:+"--call=$1"} \
    "--save=$folder/saved" >"$folder/log" 2>&1 || status=$?
  steps=$(sed -n '/^device:/,$s/^\([a-z]*\)  .*/\1/p' "$folder/saved/summary.txt" | paste -sd ' ')
  if [[ $status -ne $2 || $steps != "$3" ]] ||
    ! python3 -m json.tool "$folder/saved/$([[ -n $1 ]] && echo "call-$1" || echo result).json" >/dev/null; then
    wrong=1
    echo "first $1 with $4: status $status, not $2, or '$steps', not '$3', in:"
    cat "$folder/log"
  fi
}
expect_first "" 0 "hazards memcheck racecheck test peers bench" NOTHING=1
expect_first "" 1 "hazards memcheck racecheck test peers bench" TEST=1
[[ -s $folder/saved/hazards.log && -s $folder/saved/bench.json ]] || { wrong=1 && echo "no log was saved"; }
expect_first 1 0 "hazards memcheck racecheck" NOTHING=1
expect_first 2 1 "test" SILENT=1
expect_first 3 1 "peers bench" BENCH=1
[[ $wrong -ne 0 ]] || echo "self-test: 17 planted runs judged rightly"
exit "$wrong"
