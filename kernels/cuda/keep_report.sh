#!/bin/sh
# Runs a compiler and keeps its command and what it said beside its output, as OUTPUT.report: a launcher of nvcc, whose
# report of registers and stack frames tests/device/check_ptxas.py reads. A cache behind it repeats what was said.
#   keep_report.sh [CACHE] COMPILER ARGUMENT...
# Passes on what is no report of resources: warnings and errors.
output="" previous=""
for argument in "$@"; do
  [ "$previous" = -o ] && output=$argument
  previous=$argument
done
[ -n "$output" ] || exec "$@"

echo "command: $*" >"$output.report"
"$@" >>"$output.report" 2>&1
status=$?
sed 1d "$output.report" |
  grep -v -e '^ptxas info' -e 'bytes stack frame, ' -e '^Compile time' -e 'Function properties for' >&2
exit "$status"
