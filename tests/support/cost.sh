# What steps cost, for scripts that source this file:
#   measure NAME COMMAND...   runs the command; its status is the command's
#   print_costs               a line for each step so far: seconds by the clock, and of CPU, and the step's name
costs=()

# Sets `cpu` to the CPU seconds of this shell and of all children that it has waited for. Not by a command substitution:
# a subshell would report its own.
read_cpu() {
  local file
  file=$(mktemp)
  times >"$file"
  cpu=$(tr 'ms' '  ' <"$file" | awk '{ seconds += $1 * 60 + $2 + $3 * 60 + $4 } END { printf "%d", seconds }')
  rm -f "$file"
}

measure() {
  local name=$1 start=$SECONDS cpu cpu_before status=0
  shift
  read_cpu
  cpu_before=$cpu
  "$@" || status=$?
  read_cpu
  costs+=("$(printf '%6d s %6d s of CPU  %s' $((SECONDS - start)) $((cpu - cpu_before)) "$name")")
  return "$status"
}

print_costs() { printf '%s\n' "${costs[@]}"; }
