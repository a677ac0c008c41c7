#!/usr/bin/env bash
# Builds the wheel of normd-golden and uses it where nothing of ours is: in a new virtual environment, and as root in a
# folder that is the root of its own file system and holds Python, numpy and the wheel alone.
#   tests/kernels/python/wheel_test.sh [WHEEL]      WHEEL: one that is built already
# It compiles the kernels once more, so CTest runs it under NORMD_TEST_FULL alone; else it ends with 3: "skipped".
set -euo pipefail
cd "$(dirname "$0")/../../.."

if [[ $# -eq 0 && ${NORMD_TEST_FULL:-} != 1 ]]; then
  echo "skipped: the wheel compiles the kernels anew; set NORMD_TEST_FULL=1, or name a wheel"
  exit 3
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wheel=${1:-}
if [[ -z $wheel ]]; then
  ./kernels/python/build_wheel.sh "$scratch/wheel"
  wheel=$(echo "$scratch"/wheel/*.whl)
fi
size=$(stat -c %s "$wheel")
echo "$(basename "$wheel"): $size bytes"
if ((size > 5000000)); then
  echo "the wheel has $size bytes; it must have at most 5000000" >&2
  exit 1
fi

program='
import numpy as np, normd_golden as golden
x = np.arange(8, dtype=np.float32).reshape(2, 4)
report = golden.check(golden.layer_norm(x, 4), golden.LayerNorm(4), x)
assert report.nearest == 1.0 and report.max_ulp <= 0.5, report
print("golden:", report.summary())
'
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check "$wheel"
(cd / && env -u PYTHONPATH -u NORMD_GOLDEN_LIBRARY "$scratch/venv/bin/python" -c "$program")

if [[ $(id -u) -ne 0 ]]; then
  echo "skipped: the bare root needs root for chroot"
  exit 0
fi
# The interpreter with its own libraries and what they need, and the packages; no library of Abseil or Highway.
root=$scratch/root
site=$("$scratch/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
where='import os, sys; print(os.path.realpath(sys.executable), sys.base_prefix)'
read -r python prefix < <("$scratch/venv/bin/python" -c "$where")
mkdir -p "$root$prefix/lib" "$root/site" "$root/dev"
cp --parents "$python" "$root"
library=$prefix/lib/$(basename "$(dirname "$site")")
left_out=(--exclude=site-packages --exclude=dist-packages --exclude=test --exclude=__pycache__)
tar -C / "${left_out[@]}" -cf - ".$library" | tar -C "$root" -xf -
cp -r "$site/." "$root/site/"
# What our library needs is not copied on its account: only what Python and numpy need.
{ ldd "$python"; find "$library/lib-dynload" "$site/numpy" -name '*.so' -exec ldd {} + 2>/dev/null; } |
  grep -oE '(=> )?/[^ ]+' | sed 's/^=> //' | sort -u | while read -r needed; do
  if [[ -f $needed ]]; then cp --parents -L "$needed" "$root"; fi
done
if find "$root" \( -name 'libabsl*' -o -name 'libhwy*' \) -not -path '*/normd_golden.libs/*' | grep .; then
  echo "the bare root is not bare" >&2
  exit 1
fi
env -i PYTHONPATH=/site "$(command -v chroot)" "$root" "$python" -c "$program"
