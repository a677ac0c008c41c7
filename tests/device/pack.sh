#!/usr/bin/env bash
# Gathers what tests/device/run.sh needs on a machine that has a GPU, a driver and nothing else of this: the programs,
# stripped, with the libraries that they are linked to. They read no data. The CUDA runtime is in the programs.
#   tests/device/pack.sh [--programs=NAME,NAME...] [--pack=DIR] [--as=NAME] [BUILD]
# BUILD: a Release build, build/release by default. The folder build/device-pack is made anew; over 80 MiB is an error.
# Copy it as it is and start run.sh in it.
# --programs  those alone, of cuda_test, bench_cuda, device_test and normd
# --pack      another folder
# --as        the one program, under this name, is added to the pack that is there: several builds, for turns.py
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build/release
pack=build/device-pack
programs=(cuda_test bench_cuda device_test normd)
as=""
most_mib=80
for argument; do
  case $argument in
    --programs=?*) IFS=, read -r -a programs <<<"${argument#*=}" ;;
    --pack=?*) pack=${argument#*=} ;;
    --as=?*) as=${argument#*=} ;;
    -*)
      sed -n '2,/^[^#]/s/^# \?//p' "$0" >&2
      exit 2
      ;;
    *) build=$argument ;;
  esac
done
for program in "${programs[@]}"; do
  if [[ ! -x $build/$program ]]; then
    echo "NOT PACKED: no $build/$program: build the targets ${programs[*]} with the CUDA Toolkit" >&2
    exit 1
  fi
done
if [[ -n $as && ${#programs[@]} -ne 1 ]]; then
  echo "NOT PACKED: --as names one program: --programs=bench_cuda" >&2
  exit 2
fi

[[ -n $as ]] || rm -rf "$pack"
mkdir -p "$pack/bin" "$pack/lib" "$pack/glibc"
for program in "${programs[@]}"; do
  strip -s -o "$pack/bin/${as:-$program}" "$build/$program"
done
# glibc apart: it is for machines whose own is older.
ldd "$pack"/bin/* | sed -n -e 's/.*=> \(\/[^ ]*\) .*/\1/p' -e 's/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p' |
  sort -u | while read -r library; do
  case ${library##*/} in
    libcuda.so*) ;;  # the driver's
    libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | ld-linux*) cp -L "$library" "$pack/glibc/" ;;
    *) cp -L "$library" "$pack/lib/" ;;
  esac
done
# libcuda needs these of whichever glibc it is loaded with.
for name in libdl.so.2 libpthread.so.0 librt.so.1; do
  library=$(ldconfig -p | sed -n "s/.*\b$name .*x86-64.* => //p" | head -n 1)
  [[ -z $library ]] || cp -L "$library" "$pack/glibc/"
done
strip --strip-unneeded "$pack"/lib/*
cp tests/device/run.sh tests/device/peers.py tests/device/turns.py "$pack/"
git describe --always --dirty >"$pack/commit" 2>/dev/null || echo unknown >"$pack/commit"

kib=$(du -sk --apparent-size "$pack" | cut -f 1)
echo "$pack: $((kib / 1024)).$((kib % 1024 * 10 / 1024)) MiB of at most $most_mib"
if ((kib > most_mib * 1024)); then
  du -ak --apparent-size "$pack" | sort -nr | head -n 10 >&2
  exit 1
fi
