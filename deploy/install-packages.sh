#!/usr/bin/env bash
# Installs the Debian packages of the lists named: deploy/install-packages.sh LIST... (names in deploy/packages, no .txt).
# As root or through sudo. Does nothing where everything is installed already.
set -euo pipefail
cd "$(dirname "$0")/packages"

if [[ $# -eq 0 ]]; then
  echo "usage: $0 LIST...   lists: $(basename -s .txt -- *.txt | xargs)" >&2
  exit 2
fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "$0: this machine has no apt; install by hand what $PWD/*.txt name" >&2
  exit 1
fi

missing=()
for list in "$@"; do
  if [[ ! -f $list.txt ]]; then
    echo "$0: no list $PWD/$list.txt" >&2
    exit 2
  fi
  while read -r package; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status == installed* ]] || missing+=("$package")
  done < <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$list.txt")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "packages: all of $* are installed"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "$0: needs root or sudo to install: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "packages: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
