#!/usr/bin/env bash
# Builds the real Dockerfile and runs it, without a Docker engine and without a registry, as root on Debian:
#   deploy/container-test.sh [--normctl=PROGRAM]
# The base image is made by debootstrap from the machine's own apt sources and kept for a week in
# ${XDG_CACHE_HOME:-$HOME/.cache}/normd. Images and containers live in a folder of this run and go with it.
# Checked: health, the demo from outside (PROGRAM; build/release/normctl; else a second container), uid 10001, no
# capabilities, read-only root, writable /data, admin port, SIGTERM drains and exits with 0, and a
# session is there after a restart.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly base=docker.io/library/debian:bookworm-slim

normctl=build/release/normctl
case ${1:-} in
  --normctl=*) normctl=${1#*=} ;;
  "") ;;
  *) sed -n '2,/^[^#]/s/^# \?//p' "$0" >&2 && exit 2 ;;
esac
if [[ $(id -u) -ne 0 ]]; then
  echo "$0: needs root (debootstrap, chroot isolation)" >&2
  exit 1
fi
grep -q "^FROM $base AS build$" Dockerfile || { echo "$0: the Dockerfile is not based on $base" >&2 && exit 1; }
./deploy/install-packages.sh ci

cache=${XDG_CACHE_HOME:-$HOME/.cache}/normd
mkdir -p "$cache"
work=$(mktemp -d "$cache/container-test.XXXXXX")
name=normd-test-$$
export STORAGE_DRIVER=vfs
export DISABLE_HC_SYSTEMD=true # no timers: this script asks for the health itself
buildah() { command buildah --root "$work/storage" --runroot "$work/run" "$@"; }
podman() {
  command podman --root "$work/storage" --runroot "$work/run" --runtime runc --cgroup-manager cgroupfs "$@"
}
started=()
cleanup() {
  for container in "${started[@]}"; do
    podman rm --force --time 5 "$container" >/dev/null 2>&1 || true
  done
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
fail() {
  echo "container-test: FAILED: $*" >&2
  if [[ ${#started[@]} -gt 0 ]]; then podman logs "$name" 2>&1 | tail -n 30 >&2 || true; fi
  exit 1
}
step() { echo "== $* (${SECONDS} s)"; }

# Writes sources.list and the settings that this machine's apt has to reach them, for the chroot of the build.
machine_apt() {
  local root=$1
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 ~ /^bookworm/ { print "deb " $0 }' | sort -u >"$root/etc/apt/sources.list"
  apt-config dump | grep -iE '^Acquire::(https?::|Check-|Retries)' >"$root/etc/apt/apt.conf.d/90machine" || true
  if grep -q "^deb https:" "$root/etc/apt/sources.list"; then
    install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  fi
}

# The base's root file system as $cache/base-KEY.tar; the key changes with what it is made from.
make_base() {
  local settings key mirror
  mkdir -p "$work/settings/etc/apt/apt.conf.d"
  machine_apt "$work/settings"
  settings=$(cat "$work"/settings/etc/apt/sources.list "$work"/settings/etc/apt/apt.conf.d/*)
  key=$(sha256sum <<<"$settings" | cut -c1-16)
  tar=$cache/base-$key.tar
  find "$cache" -maxdepth 1 -name 'base-*.tar' -mtime +7 -delete
  [[ -f $tar ]] && return
  mirror=$(awk '$3 == "bookworm" && $4 == "main" { print $2; exit }' "$work/settings/etc/apt/sources.list")
  [[ -n $mirror ]] || fail "this machine's apt has no source for bookworm main"
  debootstrap --variant=minbase bookworm "$work/rootfs" "$mirror" >"$work/debootstrap.log" 2>&1 ||
    { tail -n 20 "$work/debootstrap.log" && fail "debootstrap"; }
  machine_apt "$work/rootfs"
  rm -rf "$work"/rootfs/var/cache/apt/archives/*.deb
  tar -C "$work/rootfs" -cf "$tar.$$" . && mv "$tar.$$" "$tar"
  rm -rf --one-file-system "$work/rootfs"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

step "base image"
make_base
scratch=$(buildah from --name "$name-base" scratch)
buildah add --quiet "$scratch" "$tar" / >/dev/null
buildah commit --quiet --rm "$scratch" "$base" >/dev/null

step "build"
buildah build --isolation chroot --pull-never --format docker --tag normd --file Dockerfile . >"$work/build.log" 2>&1 ||
  { tail -n 40 "$work/build.log" && fail "the build"; }
grep "^image: " "$work/build.log"

step "run"
port=$(free_port) admin=$(free_port)
run=(--ulimit nofile=4096:4096 --ulimit nproc=1024:1024 --network host --read-only --tmpfs /tmp --cap-drop ALL
  --security-opt no-new-privileges)
started+=("$name")
podman run --detach --name "$name" "${run[@]}" --env "NORMD_LISTEN=127.0.0.1:$port" \
  --env "NORMD_ADMIN_LISTEN=127.0.0.1:$admin" --env "NORMD_SERVER=127.0.0.1:$port" localhost/normd >/dev/null
for ((try = 0; ; ++try)); do
  podman healthcheck run "$name" >/dev/null 2>&1 && break
  ((try < 60)) || fail "not healthy after 30 s"
  sleep 0.5
done
echo "healthy, by the image's own HEALTHCHECK"

pid=$(podman inspect --format '{{.State.Pid}}' "$name")
status=$(cat "/proc/$pid/status")
grep -qE "^Uid:\s10001\s10001\s10001\s10001$" <<<"$status" || fail "not uid 10001: $(grep ^Uid <<<"$status")"
grep -qE "^CapEff:\s0+$" <<<"$status" || fail "has capabilities: $(grep ^CapEff <<<"$status")"
grep -qE "^NoNewPrivs:\s1$" <<<"$status" || fail "may gain privileges"
if touch "/proc/$pid/root/etc/written" 2>/dev/null; then fail "the root file system is writable"; fi
grep -qE " /data [^-]*rw" "/proc/$pid/mountinfo" || fail "/data is not writable: $(grep data "/proc/$pid/mountinfo")"
[[ -s /proc/$pid/root/usr/share/doc/normd/packages.txt ]] || fail "no SBOM"
echo "uid 10001, no capabilities, no new privileges, read-only root, /data writable," \
  "SBOM of $(wc -l <"/proc/$pid/root/usr/share/doc/normd/packages.txt") packages"
python3 - "$admin" <<'PYTHON' || fail "the admin port"
import sys
import urllib.request
for path in ("/healthz", "/readyz", "/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}{path}", timeout=5) as reply:
        body = reply.read()
        assert reply.status == 200 and body, (path, reply.status)
        print(f"{path}: {reply.status}, {len(body)} bytes")
PYTHON

step "demo from outside"
if [[ -x $normctl ]]; then
  demo=("$normctl")
else
  echo "no $normctl here: a second container runs it"
  demo=(podman run --rm --name "$name-client" "${run[@]}" --entrypoint /usr/bin/normctl localhost/normd)
  started+=("$name-client")
fi
"${demo[@]}" demo "--server=127.0.0.1:$port" >"$work/demo.log" 2>&1 || { tail -n 30 "$work/demo.log" && fail "the demo"; }
tail -n 5 "$work/demo.log"

ask() { # normctl against the container
  if [[ -x $normctl ]]; then
    "$normctl" "$@" "--server=127.0.0.1:$port"
  else
    podman exec "$name" /usr/bin/normctl "$@"
  fi
}
stop_and_check() {
  podman kill --signal TERM "$name" >/dev/null
  for ((try = 0; ; ++try)); do
    [[ $(podman inspect --format '{{.State.Status}}' "$name") == exited ]] && break
    ((try < 120)) || fail "still running 60 s after SIGTERM"
    sleep 0.5
  done
  code=$(podman inspect --format '{{.State.ExitCode}}' "$name")
  [[ $code == 0 ]] || fail "exit status $code after SIGTERM"
}

step "SIGTERM"
ask session create batch-norm --channels=4 --layout=channels-first --id=kept >/dev/null || fail "creating a session"
stop_and_check
echo "drained, exit status 0"

step "restart on the same /data"
podman start "$name" >/dev/null
for ((try = 0; ; ++try)); do
  ask session get kept >"$work/kept.log" 2>&1 && break
  ((try < 60)) || { cat "$work/kept.log" && fail "the session is gone after a restart"; }
  sleep 0.5
done
stop_and_check
echo "the session is there"
step "container test passed"
