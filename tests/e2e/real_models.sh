#!/usr/bin/env bash
# Real models with their norms served by normd, compared with plain PyTorch: normd.torch's tests, a sentence-embedding
# transformer, and a small network trained by two workers while the server is killed. Then stable-baselines3 with
# statistics that several processes share, through kills, too. Exits with 1 on any miss.
#   tests/e2e/real_models.sh [--build-dir=build/release] [--torch=debian|pypi] [--full]
# --build-dir  where normd is, or is built; the Python environment is made there, too, and used again while what it is
#              to hold stays the same.
# --torch      debian: PyTorch 1.13 for the CPU, of Debian 12. pypi: a current one, with CUDA, 3 GB to download.
# --full       RLlib's MeanStdFilter beside normd, too, in an environment of its own of 0.8 GB.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build/release torch=debian full=""
while [[ $# -gt 0 ]]; do
  case $1 in
    --build-dir=*) build=${1#*=} ;;
    --torch=debian | --torch=pypi) torch=${1#*=} ;;
    --full) full=1 ;;
    *)
      sed -n '2,/^[^#]/s/^# \?//p' "$0" >&2
      exit 2
      ;;
  esac
  shift
done
source tests/support/cost.sh

build_normd() {
  ./deploy/quickstart.sh --configure-only --build-dir="$build"
  cmake --build "$build" --target normd
}
if [[ ! -x $build/normd ]]; then measure build build_normd; fi
measure packages ./deploy/install-packages.sh torch

# Debian's PyTorch belongs to Debian's Python, whichever other one is on the PATH.
requirements=tests/e2e/real_models/requirements.txt
if [[ $torch == pypi ]]; then requirements=tests/e2e/real_models/requirements-pypi.txt; fi
venv=$build/torch-venv-$torch
# All that is needed is in the list, each at one version: nothing is resolved, so nothing can drift.
quietly=(--quiet --disable-pip-version-check --no-deps)
make_environment() {
  rm -rf "$venv"
  if [[ $torch == debian ]]; then
    /usr/bin/python3 -m venv --system-site-packages "$venv"
  else
    /usr/bin/python3 -m venv "$venv"
  fi
  "$venv/bin/pip" install "${quietly[@]}" --ignore-installed -r "$requirements"
  cp "$requirements" "$venv/installed.txt"
}
if ! cmp -s "$requirements" "$venv/installed.txt"; then measure environment make_environment; fi
install_package() {
  "$venv/bin/pip" install "${quietly[@]}" --no-build-isolation --force-reinstall ./client/python
}
measure package install_package

normd=$(realpath "$build/normd")
export PYTHONDONTWRITEBYTECODE=1
export NORMD_PROGRAM=$normd
status=0
measure tests "$venv/bin/python" -m pytest -q -rs -p no:cacheprovider tests/client/python/torch || status=1
measure drop-ins "$venv/bin/python" -m pytest -q -rs -p no:cacheprovider tests/client/python/stats || status=1
measure sentences "$venv/bin/python" tests/e2e/real_models/sentence_embeddings.py "$normd" || status=1
measure digits "$venv/bin/python" tests/e2e/real_models/digits.py "$normd" || status=1
measure statistics "$venv/bin/python" tests/e2e/real_models/shared_statistics.py "$normd" || status=1

# Its packages ask for other versions than those above.
rllib_requirements=tests/e2e/real_models/requirements-rllib.txt
rllib_venv=$build/rllib-venv
make_rllib_environment() {
  rm -rf "$rllib_venv"
  /usr/bin/python3 -m venv "$rllib_venv" &&
    "$rllib_venv/bin/pip" install "${quietly[@]}" -r "$rllib_requirements" &&
    cp "$rllib_requirements" "$rllib_venv/installed.txt"
}
compare_with_rllib() {
  { cmp -s "$rllib_requirements" "$rllib_venv/installed.txt" || make_rllib_environment; } &&
    "$rllib_venv/bin/pip" install "${quietly[@]}" --no-build-isolation --force-reinstall ./client/python &&
    "$rllib_venv/bin/python" tests/e2e/real_models/rllib_filter.py "$normd"
}
if [[ -n $full ]]; then
  measure rllib compare_with_rllib || status=1
else
  echo "NOT RUN: RLlib's MeanStdFilter beside normd (rllib_filter.py), whose packages take 0.8 GB: --full runs it"
fi
echo
print_costs
if [[ $status -eq 0 ]]; then echo "real models: everything agrees"; else echo "real models: MISSED, see above" >&2; fi
exit "$status"
