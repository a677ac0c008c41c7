#!/usr/bin/env bash
# Lays out the root of the runtime image: deploy/collect-image.sh ROOT PROGRAM...
# Programs (stripped), the shared libraries that they load, the licences of those libraries and the list of packages that
# own them (the SBOM), a user, an owned /data. Runs in the image's build stage, on Debian.
set -euo pipefail
root=$1
shift
lists=$(cd "$(dirname "$0")/packages" && pwd)

mkdir -p "$root"/{etc,tmp,data,usr/bin,usr/share/doc/normd}
for program in "$@"; do
  strip -o "$root/usr/bin/$(basename "$program")" "$program"
done

# "name => /path (address)" for a library, "/path (address)" for the loader. A library that is not found ends the build.
libraries=$(ldd "$@")
if grep -q "not found" <<<"$libraries"; then
  grep "not found" <<<"$libraries" >&2
  exit 1
fi
mapfile -t paths < <(sed -nE 's/^\t(.* => )?(\/[^ ]+) \(0x[0-9a-f]+\)$/\2/p' <<<"$libraries" | sort -u)
for path in "${paths[@]}"; do
  install -D -m 755 "$(realpath "$path")" "$root$path"
done

# Merged /usr: a package may own /lib/... or /usr/lib/..., so ask by the real file's name.
for path in "${paths[@]}"; do
  dpkg-query -S "*/$(basename "$(realpath "$path")")"
done | grep "^[^:]*:[^:]*: " | grep -E "/lib(64)?/" | cut -d: -f1 | sort -u >/tmp/owners
while read -r package; do
  dpkg-query -W -f='${Package} ${Version} ${Architecture}\n' "$package"
  install -D -m 644 "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
done </tmp/owners | sort -u >"$root/usr/share/doc/normd/packages.txt"

# runtime.txt names what the programs load directly; it must not have gone stale.
stale=$(comm -23 <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$lists/runtime.txt" | sort) \
  <(cut -d' ' -f1 "$root/usr/share/doc/normd/packages.txt" | sort))
if [[ -n $stale ]]; then
  echo "deploy/packages/runtime.txt names what the programs do not load: $stale" >&2
  exit 1
fi

echo "normd:x:10001:10001:normd:/data:/nonexistent" >"$root/etc/passwd"
echo "normd:x:10001:" >"$root/etc/group"
echo "hosts: files dns" >"$root/etc/nsswitch.conf"
chmod 1777 "$root/tmp"
chown 10001:10001 "$root/data"
du -sh "$root" | sed 's/^/image: /'
