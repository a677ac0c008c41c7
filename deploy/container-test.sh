#!/usr/bin/env bash
# Builds the real Dockerfile and runs it, without a Docker engine and without a registry, as root on Debian:
#   deploy/container-test.sh [--normctl=PROGRAM]
# The base image is made by debootstrap from the machine's own apt sources, with the packages of build.txt in it, and
# kept for a week in ${XDG_CACHE_HOME:-$HOME/.cache}/normd. Compilers in the container use this machine's ccache. Images
# and containers live in a folder of this run and go with it.
# Checked: the image's size, its SBOM, that it does not start unprotected; health, the demo from outside (PROGRAM;
# build/release/normctl; else a second container), uid 10001, no capabilities, a read-only root, what is writable, the
# admin port; SIGTERM drains and exits with 0, and a session is there after a restart; the same over TLS; the image with
# CUDA kernels, where nvcc is on the PATH, and that it is refused without a toolkit and with one that is too old.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly base=docker.io/library/debian:bookworm-slim
readonly max_image_bytes=60000000
readonly spdx_tools=spdx-tools==0.8.3

normctl=build/release/normctl
case ${1:-} in
  --normctl=*) normctl=${1#*=} ;;
  "") ;;
  *) sed -n '2,/^[^#]/s/^# \?//p' deploy/container-test.sh >&2 && exit 2 ;;
esac
if [[ $(id -u) -ne 0 ]]; then
  echo "$0: needs root (debootstrap, chroot isolation)" >&2
  exit 1
fi
grep -q "^ARG BASE=$base$" Dockerfile || { echo "$0: the Dockerfile is not based on $base" >&2 && exit 1; }
./deploy/install-packages.sh ci

cache=${XDG_CACHE_HOME:-$HOME/.cache}/normd
mkdir -p "$cache"
work=$(mktemp -d "$cache/container-test.XXXXXX")
name=normd-test-$$
# Layers on top of one another where the kernel mounts them so; else copies.
mkdir -p "$work"/probe/{lower,upper,work,merged}
export STORAGE_DRIVER=vfs
if mount -t overlay overlay -o "lowerdir=$work/probe/lower,upperdir=$work/probe/upper,workdir=$work/probe/work" \
  "$work/probe/merged" 2>/dev/null; then
  umount "$work/probe/merged"
  STORAGE_DRIVER=overlay
fi
export DISABLE_HC_SYSTEMD=true # no timers: this script asks for the health itself
storage=(--root "$work/storage" --runroot "$work/run")
buildah() { command buildah "${storage[@]}" "$@"; }
podman() { command podman "${storage[@]}" --runtime runc --cgroup-manager cgroupfs "$@"; }
started=()
# Unmounts what is below a folder with containers' storage, which is mounted onto itself.
unmount_below() {
  findmnt --raw --noheadings --output TARGET | awk -v folder="$1/" 'index($0, folder) == 1' | sort -r | xargs -r umount
}
remove_storage() {
  unmount_below "$1"
  rm -rf --one-file-system "$1"
}
cleanup() {
  for container in "${started[@]}"; do
    podman rm --force --time 5 "$container" >/dev/null 2>&1 || true
  done
  remove_storage "$work"
}
trap cleanup EXIT
fail() {
  echo "container-test: FAILED: $*" >&2
  if [[ ${#started[@]} -gt 0 ]]; then podman logs "${started[-1]}" 2>&1 | tail -n 30 >&2 || true; fi
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

# The base image in a store of its own, $store: Debian as debootstrap makes it, with the packages of build.txt, installed
# as the Dockerfile would, and ccache. Its name changes with what it is made from.
make_base() {
  local key mirror container compilers
  mkdir -p "$work/settings/etc/apt/apt.conf.d"
  machine_apt "$work/settings"
  key=$(cat "$work"/settings/etc/apt/sources.list "$work"/settings/etc/apt/apt.conf.d/* deploy/install-packages.sh \
    deploy/packages/build.txt <(sed -n '/^make_base() {/,/^}/p' deploy/container-test.sh) <(echo "$STORAGE_DRIVER") |
    sha256sum | cut -c1-16)
  store=$cache/base-$key
  find "$cache" -maxdepth 1 -name 'base-*' -mtime +7 -print0 |
    while IFS= read -r -d '' old; do remove_storage "$old"; done
  [[ -d $store ]] && return
  mirror=$(awk '$3 == "bookworm" && $4 == "main" { print $2; exit }' "$work/settings/etc/apt/sources.list")
  [[ -n $mirror ]] || fail "this machine's apt has no source for bookworm main"
  debootstrap --variant=minbase --include=ccache bookworm "$work/rootfs" "$mirror" >"$work/debootstrap.log" 2>&1 ||
    { tail -n 20 "$work/debootstrap.log" && fail "debootstrap"; }
  machine_apt "$work/rootfs"
  mkdir -p "$work/rootfs/src"
  cp -r --parents deploy/install-packages.sh deploy/packages/build.txt "$work/rootfs/src"
  tar -C "$work/rootfs" -cf "$work/rootfs.tar" .
  rm -rf --one-file-system "$work/rootfs"
  storage=(--root "$work/base" --runroot "$work/run-base")
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$work/rootfs.tar" / >/dev/null
  buildah run --isolation chroot "$container" /src/deploy/install-packages.sh build >"$work/packages.log" 2>&1 ||
    { tail -n 20 "$work/packages.log" && fail "the packages of build.txt"; }
  buildah run --isolation chroot "$container" sh -c 'apt-get clean && rm -r /src'
  for compilers in CXX CUDA; do buildah config --env "CMAKE_${compilers}_COMPILER_LAUNCHER=ccache" "$container"; done
  buildah config --env CCACHE_DIR=/ccache --env CCACHE_BASEDIR=/src "$container"
  buildah commit --quiet --rm "$container" "$base" >/dev/null
  storage=(--root "$work/storage" --runroot "$work/run")
  unmount_below "$work/base"
  # Another run may have been faster: its base is as good.
  mv --no-target-directory "$work/base" "$store" 2>/dev/null || [[ -d $store ]]
}

# Tries to make an image of the Dockerfile: try_build TAG OPTION...
try_build() {
  local tag=$1
  shift
  buildah build --isolation chroot --pull-never --format docker --volume "$(ccache --get-config cache_dir):/ccache" \
    --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || true)" --tag "$tag" --file Dockerfile "$@" . \
    >"$work/$tag.log" 2>&1
}
# The same, which must succeed.
build() {
  local tag=$1
  try_build "$@" || { tail -n 40 "$work/$tag.log" && fail "the build of $tag"; }
  image_bytes=$(sed -n 's/^image: \([0-9]*\) bytes$/\1/p' "$work/$tag.log")
  echo "image: $image_bytes bytes unpacked"
}

# Runs the image TAG in the background as container NAME: start NAME TAG PODMAN_OPTION...
start() {
  local container=$1 image=$2
  shift 2
  started+=("$container")
  podman run --detach --name "$container" "${run[@]}" "$@" "localhost/$image" >/dev/null
  for ((try = 0; ; ++try)); do
    podman healthcheck run "$container" >/dev/null 2>&1 && break
    ((try < 60)) || fail "not healthy after 30 s"
    sleep 0.5
  done
  echo "healthy, by the image's own HEALTHCHECK"
}

# Parses the SBOM of a running container's root with the SPDX project's own parser, and checks that it is complete.
check_sbom() {
  local sbom=$1/usr/share/doc/normd/sbom.spdx.json venv=$cache/$spdx_tools
  if [[ ! -d $venv ]]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check "$spdx_tools"
    mv "$work/venv" "$venv"
  fi
  "$venv/bin/python" -m spdx_tools.spdx.clitools.pyspdxtools --infile "$sbom" || fail "the SBOM is not SPDX"
  python3 - "$sbom" "$1/usr/share/doc/normd/packages.txt" <<'PYTHON' || fail "the SBOM is not complete"
import json
import sys
sbom = json.load(open(sys.argv[1]))
packages = {package["name"]: package for package in sbom["packages"]}
for line in open(sys.argv[2]):
    name, version, architecture = line.split()
    package = packages[name]
    assert package["versionInfo"] == version and package["licenseDeclared"], package
    purl = package["externalRefs"][0]["referenceLocator"]
    assert purl.startswith("pkg:deb/debian/") and f"arch={architecture}" in purl, purl
assert {"normd", "libc6", "libgrpc29", "libcli11-dev"} <= packages.keys(), packages.keys()
print(f"SBOM: SPDX 2.3, {len(packages)} packages")
PYTHON
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

step "base image"
make_base
storage+=(--storage-opt "$STORAGE_DRIVER.imagestore=$store")

step "build"
build normd
((image_bytes <= max_image_bytes)) || fail "the image is larger than $max_image_bytes bytes"

# --read-only-tmpfs=false: Docker has no tmpfs that nobody asked for.
run=(--ulimit nofile=4096:4096 --ulimit nproc=1024:1024 --network host --read-only --read-only-tmpfs=false --cap-drop ALL
  --security-opt no-new-privileges)
step "without settings"
if podman run --rm --name "$name-bare" "${run[@]}" localhost/normd >"$work/bare.log" 2>&1; then
  fail "started in plain text on every interface"
fi
grep -q -e "^normd: .*\[::\]:8001.*--plaintext" "$work/bare.log" ||
  { cat "$work/bare.log" && fail "an unclear error"; }
cat "$work/bare.log"

step "run"
socket=unix:/run/normd/normd.sock
port=$(free_port) admin=$(free_port)
start "$name" normd --env "NORMD_LISTEN=127.0.0.1:$port,$socket" --env "NORMD_ADMIN_LISTEN=127.0.0.1:$admin"

pid=$(podman inspect --format '{{.State.Pid}}' "$name")
status=$(cat "/proc/$pid/status")
grep -qE "^Uid:\s10001\s10001\s10001\s10001$" <<<"$status" || fail "not uid 10001: $(grep ^Uid <<<"$status")"
grep -qE "^CapEff:\s0+$" <<<"$status" || fail "has capabilities: $(grep ^CapEff <<<"$status")"
grep -qE "^NoNewPrivs:\s1$" <<<"$status" || fail "may gain privileges"
if touch "/proc/$pid/root/etc/written" 2>/dev/null; then fail "the root file system is writable"; fi
grep -qE " /data [^-]*rw" "/proc/$pid/mountinfo" || fail "/data is not writable: $(grep data "/proc/$pid/mountinfo")"
grep -qE " /run/normd [^-]*rw" "/proc/$pid/mountinfo" || fail "/run/normd is not writable"
owned=$(find "/proc/$pid/root/" -xdev -user 10001 -not -path "*/root/data" -not -path "*/root/run/normd")
[[ -z $owned ]] || fail "uid 10001 owns something in the image: $owned"
echo "uid 10001, no capabilities, no new privileges, read-only root, /data and /run/normd writable"
check_sbom "/proc/$pid/root"
version=$(podman inspect --format '{{index .Config.Labels "org.opencontainers.image.version"}}' "$name")
[[ $(podman exec "$name" /usr/bin/normd --version) == "normd $version" ]] || fail "the label says version $version"
python3 - "$admin" <<'PYTHON' || fail "the admin port"
import sys
import urllib.request
for path in ("/healthz", "/readyz", "/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}{path}", timeout=5) as reply:
        body = reply.read()
        assert reply.status == 200 and body, (path, reply.status)
        print(f"{path}: {reply.status}, {len(body)} bytes")
PYTHON

# normctl outside of the container: the program, or that of a second container.
client() {
  if [[ -x $normctl ]]; then
    "$normctl" "$@"
  else
    # Not where they are here: the image's own folders there may be closed to its user.
    local certificates=()
    [[ ! -d $work/tls ]] || certificates=(--volume "$work/tls:/tls:ro")
    podman run --rm --name "$name-client" "${run[@]}" "${certificates[@]}" --entrypoint /usr/bin/normctl \
      localhost/normd "${@//"$work/tls"//tls}"
  fi
}
[[ -x $normctl ]] || { echo "no $normctl here: a second container is the client" && started+=("$name-client"); }
step "demo from outside"
client demo "--server=127.0.0.1:$port" >"$work/demo.log" 2>&1 || { tail -n 30 "$work/demo.log" && fail "the demo"; }
tail -n 5 "$work/demo.log"

stop_and_check() {
  local container=$1
  podman kill --signal TERM "$container" >/dev/null
  for ((try = 0; ; ++try)); do
    [[ $(podman inspect --format '{{.State.Status}}' "$container") == exited ]] && break
    ((try < 120)) || fail "still running 60 s after SIGTERM"
    sleep 0.5
  done
  code=$(podman inspect --format '{{.State.ExitCode}}' "$container")
  [[ $code == 0 ]] || fail "exit status $code after SIGTERM"
}

step "SIGTERM"
client session create batch-norm --channels=4 --layout=channels-first --id=kept "--server=127.0.0.1:$port" >/dev/null ||
  fail "creating a session"
stop_and_check "$name"
echo "drained, exit status 0"

step "restart on the same /data"
podman start "$name" >/dev/null
for ((try = 0; ; ++try)); do
  # Over the Unix socket, from inside.
  podman exec "$name" /usr/bin/normctl session get kept >"$work/kept.log" 2>&1 && break
  ((try < 60)) || { cat "$work/kept.log" && fail "the session is gone after a restart"; }
  sleep 0.5
done
stop_and_check "$name"
echo "the session is there"

step "TLS"
port=$(free_port)
./deploy/make-certificates.sh "$work/tls" >/dev/null
chown -R 10001:10001 "$work/tls"
start "$name-tls" normd --volume "$work/tls:/etc/normd/tls:ro" --env "NORMD_LISTEN=[::]:$port,$socket" \
  --env NORMD_TLS_CERTIFICATE=/etc/normd/tls/server.crt --env NORMD_TLS_KEY=/etc/normd/tls/server.key \
  --env NORMD_TLS_CLIENT_CA=/etc/normd/tls/ca.crt --env NORMD_ADMIN_LISTEN=
credentials=("--ca=$work/tls/ca.crt" "--certificate=$work/tls/client.crt" "--key=$work/tls/client.key")
client demo "--server=localhost:$port" "${credentials[@]}" >"$work/tls.log" 2>&1 ||
  { tail -n 30 "$work/tls.log" && fail "the demo over TLS"; }
tail -n 1 "$work/tls.log"
if client health "--server=localhost:$port" --deadline=5s >/dev/null 2>&1; then fail "answers plain text"; fi
if client health "--server=localhost:$port" --deadline=5s "--ca=$work/tls/ca.crt" >/dev/null 2>&1; then
  fail "answers without a client certificate"
fi
stop_and_check "$name-tls"
echo "the demo with a client certificate; refused without one, and in plain text"

step "CUDA kernels"
if try_build normd-cuda --build-arg NORMD_CUDA=ON; then fail "CUDA kernels were asked for, without a toolkit"; fi
grep "^NORMD_CUDA=ON, but there is no" "$work/normd-cuda.log" || fail "the build without a toolkit fails unclearly"
mkdir -p "$work/old-toolkit/bin"
printf '#!/bin/sh\necho "Cuda compilation tools, release 12.4, V12.4.131"\n' >"$work/old-toolkit/bin/nvcc"
chmod +x "$work/old-toolkit/bin/nvcc"
if try_build normd-cuda --build-arg NORMD_CUDA=ON --build-context "cuda=$work/old-toolkit"; then
  fail "CUDA kernels were asked for, with a toolkit that is too old"
fi
grep -A 5 "CUDA kernels cannot be compiled" "$work/normd-cuda.log" | grep "Found: 12\.4\.131" ||
  fail "the build with an old toolkit fails unclearly"
if command -v nvcc >/dev/null; then
  # nvcc itself says where its toolkit is: what the PATH has may be a script that calls it.
  toolkit=$(nvcc --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
  build normd-cuda --build-arg NORMD_CUDA=ON --build-context "cuda=$(realpath "$toolkit")"
  start "$name-cuda" normd-cuda --env "NORMD_LISTEN=$socket"
  devices=$(podman logs "$name-cuda" 2>&1 | grep " device name=")
  echo "$devices"
  grep -q " device name=cuda" <<<"$devices" && ! grep -q "built without CUDA" <<<"$devices" || fail "no CUDA kernels"
  stop_and_check "$name-cuda"
else
  echo "CUDA variant: not built: no toolkit, nvcc is not on the PATH"
fi
step "container test passed"
