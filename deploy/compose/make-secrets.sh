#!/usr/bin/env bash
# Makes the passwords of deploy/compose, new ones where there are none: deploy/compose/make-secrets.sh [FOLDER]
# The folder's files stay as they are when they are there, because a database keeps the password that it was made with.
set -euo pipefail
umask 077
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"

password() { # of 32 characters, in a file
  [[ -s $1 ]] || od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$1"
}

password "$folder/postgres_password"
password "$folder/grafana_password"
printf 'NORMD_SESSION_STORE=postgres://normd:%s@postgres/normd\n' "$(<"$folder/postgres_password")" >"$folder/normd.env"
# The containers' users read these two through a bind mount; the folder keeps other users of this machine out.
chmod 0444 "$folder/postgres_password" "$folder/grafana_password"
echo "$folder: the passwords of PostgreSQL and Grafana (user admin: $folder/grafana_password)"
