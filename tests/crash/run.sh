#!/usr/bin/env bash
# Proves that kill -9 loses nothing that was acknowledged and applies nothing twice.
#   tests/crash/run.sh [--full] [--level=memory|process|power] [--kills=N] [--seed=N] [--build-dir=DIR]
# --level      only this one; without it all three, then the planted error, PostgreSQL and two replicas.
# --kills      a level's: 300 by default, 10,000 with --full. A third of them, and at least 100 (1,000 of 10,000), hit
#              the real normd, the others a program that trains on the store itself.
# --full       also 100 kills of PostgreSQL instead of 20, and of two replicas on it 20 pauses, kills and kills of
#              PostgreSQL instead of 3.
# --seed       of the moments of the kills; printed with every run.
# --smoke      10 kills of the store, 3 of normd and the planted error, at level power: seconds, for CTest.
# --build-dir  where the programs were built (cmake with NORMD_TESTS=ON): build/release by default. They are built here
#              first, unless --programs DIR and --normd FILE say where they are.
# A table comes last; exit code 0: nothing was lost, doubled or changed, and the planted error was caught.
set -euo pipefail
cd "$(dirname "$0")/../.."

full="" smoke="" only="" kills="" seed="" build=build/release programs="" normd=""
while [[ $# -gt 0 ]]; do
  case $1 in
    --full) full=1 ;;
    --smoke) smoke=1 ;;
    --level=* | --kills=* | --seed=* | --build-dir=* | --programs=* | --normd=*)
      set -- "${1%%=*}" "${1#*=}" "${@:2}"
      continue
      ;;
    --level) only=${2:?} && shift ;;
    --kills) kills=${2:?} && shift ;;
    --seed) seed=${2:?} && shift ;;
    --build-dir) build=${2:?} && shift ;;
    --programs) programs=${2:?} && shift ;;
    --normd) normd=${2:?} && shift ;;
    *)
      sed -n '2,/^[^#]/s/^# \?//p' "$0" >&2
      exit 2
      ;;
  esac
  shift
done
case $only in "" | memory | process | power) ;; *) echo "--level: memory, process or power, not $only" >&2 && exit 2 ;; esac

if [[ -z $programs ]]; then
  cmake --build "$build" --target normd crash_child crash_parent
  programs=$build
fi
normd=${normd:-$programs/normd}
for program in "$programs/crash_child" "$programs/crash_parent" "$normd"; do
  [[ -x $program ]] || { echo "$program is not there" >&2 && exit 2; }
done

kills=${kills:-${full:+10000}}
kills=${kills:-300}
server_kills=$((kills / 3 > 100 ? kills / 10 > 100 ? kills / 10 : 100 : kills / 3))
child_kills=$((kills - server_kills))
postgres_child_kills=${full:+500} postmaster_kills=${full:+100} pauses=${full:+20} canary_kills=200

folder=$(mktemp -d "${TMPDIR:-/tmp}/normd-crash-XXXXXX")
# PostgreSQL runs as another user, who has to reach its folder.
chmod 711 "$folder"
postgres=$folder/postgres
clean_up() {
  [[ ! -e $postgres ]] || tests/support/postgres.sh stop "$postgres" || echo "PostgreSQL was not stopped" >&2
  rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

status=0
limit=${full:+14400}
limit=${limit:-600}  # seconds
lines=()
# parent MODE OPTIONS...: runs crash_parent, keeps the line that it prints.
parent() {
  local line=""
  # Whatever hangs, this ends; what it started ends with it.
  line=$(timeout --kill-after=10 "$limit" "$programs/crash_parent" --mode="$1" --child="$(realpath "$programs/crash_child")" \
    --normd="$(realpath "$normd")" --folder="$folder" ${seed:+--seed="$seed"} "${@:2}") || status=1
  lines+=("${line:-failed|$*}")
}

print_table() {
  local format='%-9s %7s %10s %13s %9s %6s %8s %11s %8s\n' line
  # shellcheck disable=SC2059  # the format is ours
  printf "$format" level kills "of normd" acknowledged replays lost doubled mismatches seconds
  for line in "${lines[@]}"; do
    IFS='|' read -r -a fields <<< "$line"
    if [[ ${fields[0]} == row ]]; then
      # shellcheck disable=SC2059
      printf "$format" "${fields[@]:1}"
    elif [[ ${fields[0]} == canary ]]; then
      echo "planted error, level ${fields[1]}: ${fields[2]}"
    else
      echo "FAILED, and said nothing: ${fields[*]}"
    fi
  done
}

if [[ -n $smoke ]]; then
  parent kills --level=power --kills=10 --server_kills=3
  parent canary --level=power --kills=100
  print_table
  exit "$status"
fi

for level in ${only:-memory process power}; do
  parent kills --level="$level" --kills="$child_kills" --server_kills="$server_kills"
done
for level in ${only:-process power}; do
  # Memory acknowledges what it will lose; there is no error to plant.
  [[ $level == memory ]] || parent canary --level="$level" --kills="$canary_kills"
done
if [[ -z $only ]] && ! url=$(tests/support/postgres.sh start "$postgres"); then
  echo "PostgreSQL cannot be started: see tests/support/postgres.sh" >&2
  status=1
elif [[ -z $only ]]; then
  control=(--postgres_script="$PWD/tests/support/postgres.sh" --postgres_folder="$postgres")
  parent postgres --url="$url" "${control[@]}" --kills="${postgres_child_kills:-40}" \
    --postmaster_kills="${postmaster_kills:-20}"
  # Sessions of its own: another schema.
  schema=crash_replicas
  psql -q "$url" -c "CREATE SCHEMA $schema"
  parent replicas --url="$url&options=-csearch_path%3D$schema" "${control[@]}" --pauses="${pauses:-3}"
fi
print_table
exit "$status"
