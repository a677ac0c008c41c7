#!/usr/bin/env bash
# Makes what a trial of normd with TLS needs, with the openssl program: a CA, a server certificate for localhost and the
# given names, a client certificate, and a token. Prints how to start normd with them and how to call it.
#   deploy/make-certificates.sh DIR [NAME...] [--client=spiffe://normd/trial] [--days=365] [--force]
# NAME      further host names or addresses of the server.
# --client  the URI in the client certificate, which becomes the caller's identity.
# --force   replaces what is there. Whoever trusts the old CA must then get the new one.
# The CA's key lies in DIR as well: good for a trial, and for nothing that outlives it.
set -euo pipefail

usage() {
  sed -n '2,/^[^#]/s/^# \?//p' "$0" >&2
  exit 2
}

client=spiffe://normd/trial days=365 force="" dir="" names=(localhost 127.0.0.1 ::1)
for argument in "$@"; do
  case $argument in
    --client=?*) client=${argument#*=} ;;
    --days=?*) days=${argument#*=} ;;
    --force) force=1 ;;
    -*) usage ;;
    *) if [[ -z $dir ]]; then dir=$argument; else names+=("$argument"); fi ;;
  esac
done
if [[ -z $dir || ! $days =~ ^[1-9][0-9]*$ || ! $client =~ ^[A-Za-z][A-Za-z0-9+.-]*:[^,[:space:]]+$ ]]; then usage; fi

alternatives=""
for name in "${names[@]}"; do
  if [[ $name =~ ^[0-9]+(\.[0-9]+){3}$ || $name =~ ^[0-9A-Fa-f]*:[0-9A-Fa-f:.]+$ ]]; then
    alternatives+=",IP:$name"
  elif [[ $name =~ ^(\*\.)?[A-Za-z0-9.-]+$ ]]; then
    alternatives+=",DNS:$name"
  else
    echo "make-certificates: $name is no host name and no address" >&2
    exit 2
  fi
done

mkdir -p "$dir"
dir=$(realpath "$dir")
for file in ca.crt ca.key server.crt server.key client.crt client.key token tokens; do
  if [[ -e $dir/$file && -z $force ]]; then
    echo "make-certificates: $dir/$file exists; --force replaces it, and everything else that this script makes" >&2
    exit 1
  fi
done

# Made beside the old files and moved at the end, so that there is never a half of a set. mktemp's folder is private, and
# so are the files in it.
work=$(mktemp -d "$dir/.new.XXXXXX")
trap 'rm -rf "$work"' EXIT
umask 077

# certificate NAME SUBJECT EXTENSIONS [OPTION...]: a key and a certificate of it.
certificate() {
  local name=$1 subject=$2 extensions=$3
  shift 3
  printf '[req]\ndistinguished_name=subject\n[subject]\n[extensions]\n%b\n' "$extensions" >"$work/config"
  openssl req -x509 -config "$work/config" -extensions extensions -subj "/CN=$subject" -days "$days" -sha256 \
    -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/$name.key" -out "$work/$name.crt" "$@" \
    2>"$work/log" || {
    cat "$work/log" >&2
    return 1
  }
}

signed=(-CA "$work/ca.crt" -CAkey "$work/ca.key")
leaf='basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n'
certificate ca "normd trial CA" \
  'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash'
certificate server "${names[0]}" "${leaf}extendedKeyUsage=serverAuth\nsubjectAltName=${alternatives#,}" "${signed[@]}"
certificate client "normd trial client" "${leaf}extendedKeyUsage=clientAuth\nsubjectAltName=URI:$client" "${signed[@]}"
openssl rand -hex 32 >"$work/token"
# Servers know tokens by their hash alone. What is hashed is the token without the line's end.
printf '# NAME sha256:HEX [expires=TIME]\ntrial sha256:%s\n' \
  "$(tr -d '\n' <"$work/token" | openssl dgst -sha256 -r | cut -d' ' -f1)" >"$work/tokens"
rm "$work/config" "$work/log"
chmod 644 "$work"/*.crt
mv -f "$work"/* "$dir"

quoted=$(printf '%q' "$dir")
cat <<EOF
Made for ${names[*]} and $client, for $days days, in $dir:
  ca.crt ca.key           the CA: clients need ca.crt, and nobody ca.key
  server.crt server.key   for normd
  client.crt client.key   for a caller that is uri:$client
  token tokens            for a caller that is token:trial; normd needs tokens, which holds the hash

Start normd so that callers need the certificate or the token:
  normd --listen=127.0.0.1:8001 --tls_certificate=$quoted/server.crt --tls_key=$quoted/server.key \\
    --tls_client_ca=$quoted/ca.crt --tokens_file=$quoted/tokens

Call it with the certificate, or with the token:
  normctl health -s 127.0.0.1:8001 --ca $quoted/ca.crt --certificate $quoted/client.crt --key $quoted/client.key
  normctl health -s 127.0.0.1:8001 --ca $quoted/ca.crt --token-file $quoted/token
EOF
