#!/usr/bin/env bash
# A private PostgreSQL for tests: its data, its socket and its log are in one folder, and it has no port.
#   tests/support/postgres.sh start DIR     makes a cluster in DIR if there is none, starts it, prints its URL
#   tests/support/postgres.sh stop DIR      stops it, connections or not; DIR stays
#   tests/support/postgres.sh kill DIR      kill -9 of its postmaster and of that one's children, as a crash would
#   tests/support/postgres.sh restart DIR   starts it again (after stop or kill), prints its URL
# It trusts whoever reaches the socket, whose folder is open to its owner alone. PostgreSQL refuses to run as root: as
# root this runs it as user postgres, or nobody; DIR must be somewhere that user can reach. NORMD_POSTGRES_BIN is where
# initdb and postgres are, /usr/lib/postgresql/15/bin by default.
set -euo pipefail

if [[ $# -ne 2 ]]; then
  sed -n '2,9s/^# \?//p' "$0" >&2
  exit 2
fi
command=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd -P)
bin=${NORMD_POSTGRES_BIN:-/usr/lib/postgresql/15/bin}
data=$dir/data socket=$dir/socket log=$dir/log

owner=$(id -un)
as_owner=()
if [[ $EUID -eq 0 ]]; then
  owner=postgres
  id "$owner" > /dev/null 2>&1 || owner=nobody
  as_owner=(setpriv "--reuid=$owner" "--regid=$(id -g "$owner")" --clear-groups)
fi

# Whether a process lives: the dead that nobody has waited for (PID 1 of a container may not) have no command line.
lives() {
  [[ -n $(tr -d '\0' 2> /dev/null < "/proc/$1/cmdline") ]] 2> /dev/null
}

pid_in_file() {
  head -n 1 "$data/postmaster.pid" 2> /dev/null || true
}

# The postmaster of DIR; nothing if there is none or its pid file is a leftover and the number is another's now.
postmaster() {
  local pid
  pid=$(pid_in_file)
  if [[ -n $pid ]] && lives "$pid" && tr '\0' '\n' < "/proc/$pid/cmdline" | grep -qFx "$data"; then echo "$pid"; fi
}

make_cluster() {
  [[ -e $data/PG_VERSION ]] && return
  mkdir -p "$data" "$socket"
  chmod 700 "$data" "$socket"
  [[ $EUID -ne 0 ]] || chown "$owner" "$dir" "$data" "$socket"
  (cd "$dir" && "${as_owner[@]}" "$bin/initdb" --pgdata="$data" --username=postgres --auth=trust --encoding=UTF8 \
    --locale=C --no-instructions > "$dir/initdb.log" 2>&1) || { cat "$dir/initdb.log" >&2 && return 1; }
  {
    echo "listen_addresses = ''"
    echo "unix_socket_directories = '$socket'"
    echo "unix_socket_permissions = 0700"
    echo "shared_buffers = 64MB"
    echo "max_connections = 100"
    echo "fsync = on"
  } >> "$data/postgresql.conf"
}

start() {
  if [[ -z $(postmaster) ]]; then
    # PostgreSQL would take a dead postmaster that nobody has waited for as a living one.
    [[ -z $(pid_in_file) ]] || lives "$(pid_in_file)" ||
      rm -f "$data/postmaster.pid" "$socket"/.s.PGSQL.*.lock
    [[ $EUID -ne 0 ]] || chown "$owner" "$dir"
    (cd "$dir" && "${as_owner[@]}" "$bin/pg_ctl" start --pgdata="$data" --log="$log" --wait --timeout=60 --silent \
      < /dev/null > /dev/null 2>&1) || { tail -n 20 "$log" >&2 && return 1; }
  fi
  echo "postgresql:///postgres?host=$socket&user=postgres"
}

stop() {
  [[ -n $(postmaster) ]] || return 0
  (cd "$dir" && "${as_owner[@]}" "$bin/pg_ctl" stop --pgdata="$data" --mode=fast --wait --timeout=60 --silent)
}

# The postmaster first and stopped, so that it makes no more children while they are counted.
crash() {
  local pid children
  pid=$(postmaster)
  [[ -n $pid ]] || return 0
  kill -STOP "$pid"
  children=$(ps -o pid= --ppid "$pid" || true)
  # shellcheck disable=SC2086  # a list of numbers
  kill -KILL "$pid" $children 2> /dev/null || true
  for pid in $pid $children; do
    while lives "$pid"; do sleep 0.01; done
  done
}

case $command in
  start) make_cluster && start ;;
  restart) start ;;
  stop) stop ;;
  kill) crash ;;
  *)
    sed -n '2,9s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
