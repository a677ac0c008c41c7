#!/usr/bin/env bash
# Gathers what tests/device/run.sh needs on a machine that has a GPU, a driver and nothing else of this: the programs,
# stripped, with the libraries that they are linked to. They read no data. The CUDA runtime is in the programs.
#   tests/device/pack.sh [BUILD]     BUILD: a Release build, build/release by default
# The folder build/device-pack is made anew; over 80 MiB is an error. Copy it as it is and start run.sh in it.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${1:-build/release}
pack=build/device-pack
most_mib=80
if [[ ! -x $build/bench_cuda ]]; then
  echo "NOT PACKED: no $build/bench_cuda: build the targets cuda_test, bench_cuda, device_test and normd with the CUDA Toolkit" >&2
  exit 1
fi

rm -rf "$pack"
mkdir -p "$pack/bin" "$pack/lib" "$pack/glibc"
for program in cuda_test bench_cuda device_test normd; do
  strip -o "$pack/bin/$program" "$build/$program"
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
cp tests/device/run.sh tests/device/peers.py "$pack/"
git describe --always --dirty >"$pack/commit" 2>/dev/null || echo unknown >"$pack/commit"

kib=$(du -sk --apparent-size "$pack" | cut -f 1)
echo "$pack: $((kib / 1024)).$((kib % 1024 * 10 / 1024)) MiB of at most $most_mib"
if ((kib > most_mib * 1024)); then
  du -ak --apparent-size "$pack" | sort -nr | head -n 10 >&2
  exit 1
fi
