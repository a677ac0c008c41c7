#!/usr/bin/env bash
# Lays out the root of the runtime image: deploy/collect-image.sh ROOT BUILD PROGRAM...
# The programs of the build folder BUILD (stripped), the shared libraries that they load, licences, the list of packages
# that own the libraries, an SBOM, a user, an owned /data. Runs in the image's build stage, on Debian. The files' times
# are SOURCE_DATE_EPOCH (default 0).
set -euo pipefail
root=$1 build=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
epoch=${SOURCE_DATE_EPOCH:-0}
doc=$root/usr/share/doc/normd

mkdir -p "$root"/{etc,data,run/normd,usr/bin,var/lib/dpkg/status.d} "$doc"
for program in "$@"; do
  strip -o "$root/usr/bin/$program" "$build/$program"
done

# "name => /path (address)" for a library, "/path (address)" for the loader. A library that is not found ends the build.
libraries=$(ldd "${@/#/$build/}")
if grep -q "not found" <<<"$libraries"; then
  grep "not found" <<<"$libraries" >&2
  exit 1
fi
mapfile -t paths < <(sed -nE 's/^\t(.* => )?(\/[^ ]+) \(0x[0-9a-f]+\)$/\2/p' <<<"$libraries" | sort -u)
for path in "${paths[@]}"; do
  install -D -m 755 "$(realpath "$path")" "$root$path"
done

# Merged /usr: a package may own /lib/... or /usr/lib/..., so both are asked for. A library of no package ends the
# build.
for path in "${paths[@]}"; do
  real=$(realpath "$path")
  dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}"
done | cut -d: -f1 | sort -u >/tmp/loaded
# What was compiled in: the packages of the headers.
ninja -C "$build" -t deps | sed -nE 's/^    (\/usr\/(include|lib)\/.*)/\1/p' | sort -u | xargs realpath | sort -u |
  xargs dpkg-query -S | cut -d: -f1 | sort -u | comm -13 /tmp/loaded - >/tmp/compiled
while read -r package; do
  install -D -m 644 "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
done < <(cat /tmp/loaded /tmp/compiled)
while read -r package; do
  dpkg-query -W -f='${Package} ${Version} ${Architecture}\n' "$package"
  # Where scanners of images without dpkg look for packages.
  dpkg-query -s "$package" >"$root/var/lib/dpkg/status.d/$package"
done </tmp/loaded >"$doc/packages.txt"

cuda=""
if grep -q '^CMAKE_CUDA_COMPILER:[^=]*=/' "$build/CMakeCache.txt"; then
  cuda=$(sed -nE 's/^#define CUDART_VERSION +([0-9]+)$/\1/p' /usr/local/cuda/include/cuda_runtime_api.h)
  cuda=$((cuda / 1000)).$((cuda % 1000 / 10))
fi
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
"$here/write-sbom.sh" "$version" "$epoch" "$cuda" /tmp/loaded /tmp/compiled >"$doc/sbom.spdx.json"

# runtime.txt names what the programs load directly; it must not have gone stale.
stale=$(comm -23 <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$here/packages/runtime.txt" | sort) /tmp/loaded)
if [[ -n $stale ]]; then
  echo "deploy/packages/runtime.txt names what the programs do not load: $stale" >&2
  exit 1
fi

echo "normd:x:10001:10001:normd:/data:/nonexistent" >"$root/etc/passwd"
echo "normd:x:10001:" >"$root/etc/group"
echo "hosts: files dns" >"$root/etc/nsswitch.conf"
# What the image is made of: for scanners, and for NVIDIA's container runtime, which places the driver's libraries.
cp -L /etc/os-release /etc/debian_version "$root/etc/"
chown 10001:10001 "$root/data" "$root/run/normd"
chmod 700 "$root/data" "$root/run/normd"
find "$root" -exec touch --no-dereference --date="@$epoch" {} +
echo "image: $(du -sb "$root" | cut -f1) bytes"
