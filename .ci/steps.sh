# The steps of .ci/run, for scripts that source this file:
#   step NAME COMMAND...                runs the command; the first one that fails ends the script
#   step_when_changed NAME COMMAND...   the same, unless .ci/when_changed.py lets it be left out; with $full always
#   leave_out NAME WHAT                 whether WHAT need not run, by the list of NAME
#   has_passed NAME                     records that it ran and passed
#   print_steps                         what each step cost, and then what was not run, with the reason
source tests/support/cost.sh
not_run=() recorded=""

step() {
  local name=$1 start=$SECONDS
  echo
  echo "=== $name: ${*:2}"
  if ! measure "$@"; then
    echo "=== $name FAILED after $((SECONDS - start)) s"
    exit 1
  fi
  echo "=== $name took $((SECONDS - start)) s"
}

leave_out() {
  local reason
  [[ -z ${full:-} ]] && reason=$(.ci/when_changed.py unchanged "$1") || return
  not_run+=("$2: NOT RUN: $reason")
  echo
  echo "=== ${not_run[-1]}"
}

has_passed() {
  .ci/when_changed.py passed "$1"
  [[ -z $(git status --porcelain -- .ci/passed) ]] || recorded=1
}

step_when_changed() {
  leave_out "$1" "$1" && return
  step "$@"
  has_passed "$1"
}

print_steps() {
  echo
  echo "=== cost of each step"
  print_costs
  echo "$(printf '%6d' "$SECONDS") s  in all"
  if [[ ${#not_run[@]} -gt 0 ]]; then printf '%s\n' "${not_run[@]}"; fi
  if [[ -n $recorded ]]; then echo ".ci/passed has changed: commit it, or the next run repeats these steps"; fi
}
