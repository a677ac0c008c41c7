#!/usr/bin/env bash
# A private PgBouncer before the PostgreSQL of postgres.sh: pools called transaction, transaction20, statement and
# session, by their mode; transaction has one connection. It resets nothing when a session ends.
#   tests/support/pgbouncer.sh start DIR POSTGRES   starts it before the cluster in POSTGRES, prints a URL without a database
#   tests/support/pgbouncer.sh stop DIR             stops it
# As root it runs as user postgres, or nobody, as postgres.sh does.
set -euo pipefail

if [[ $# -lt 2 ]]; then
  sed -n '2,6s/^# \?//p' "$0" >&2
  exit 2
fi
mkdir -p "$2"
dir=$(cd "$2" && pwd -P)

start() {
  local socket=$1/socket run_as=()
  if [[ $EUID -eq 0 ]]; then
    local owner=postgres
    id "$owner" > /dev/null 2>&1 || owner=nobody
    chown "$owner" "$dir"
    run_as=(setpriv "--reuid=$owner" "--regid=$(id -g "$owner")" --clear-groups)
  fi
  {
    echo "[databases]"
    local server="host=$socket dbname=postgres user=postgres"
    echo "transaction = $server pool_mode=transaction pool_size=1"
    echo "transaction20 = $server pool_mode=transaction pool_size=20"
    echo "statement = $server pool_mode=statement pool_size=1"
    echo "session = $server pool_mode=session pool_size=4"
    echo "[pgbouncer]"
    printf '%s\n' "listen_addr =" "unix_socket_dir = $dir" "listen_port = 6432" "auth_type = any" \
      "server_reset_query =" "pidfile = $dir/pid" "logfile = $dir/log"
  } > "$dir/pgbouncer.ini"
  chmod 644 "$dir/pgbouncer.ini"
  "${run_as[@]}" /usr/sbin/pgbouncer -q -d "$dir/pgbouncer.ini" < /dev/null > "$dir/start.log" 2>&1 ||
    { cat "$dir/start.log" >&2 && return 1; }
  # It goes to the background before it listens.
  for _ in {1..100}; do
    [[ -S $dir/.s.PGSQL.6432 ]] && break
    sleep 0.05
  done
  echo "postgresql:///?host=$dir&port=6432&user=postgres"
}

case $1 in
  start) start "$(cd "$3" && pwd -P)" ;;
  stop) [[ ! -s $dir/pid ]] || kill "$(cat "$dir/pid")" ;;
  *)
    sed -n '2,6s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
