#!/usr/bin/env bash
# From a fresh Debian 12 machine to a running server: installs packages (root or sudo), builds Release, starts normd,
# runs the demo against it and stays up until Ctrl-C.
#   deploy/quickstart.sh [--once] [--port=8001] [--admin-port=8002] [--build-dir=build/release] [--cuda-arch=WHICH]
#                        [--configure-only]
# --once           end after the demo, with its status, and leave no sessions behind. Port 0 is any free one.
# --cuda-arch      which GPUs to compile CUDA kernels for, where nvcc is on the PATH: native, a compute capability without
#                  its point (90), all, or none. By default native where a GPU answers, else none: it could run none.
# --configure-only end before anything is compiled.
set -euo pipefail
cd "$(dirname "$0")/.."

once="" port=8001 admin_port=8002 build=build/release cuda_arch="" configure_only=""
while [[ $# -gt 0 ]]; do
  case $1 in
    --once) once=1 ;;
    --port=*) port=${1#*=} ;;
    --port) port=${2:?--port needs a number} && shift ;;
    --admin-port=*) admin_port=${1#*=} ;;
    --admin-port) admin_port=${2:?--admin-port needs a number} && shift ;;
    --build-dir=*) build=${1#*=} ;;
    --cuda-arch=*) cuda_arch=${1#*=} ;;
    --configure-only) configure_only=1 ;;
    *)
      sed -n '2,/^[^#]/s/^# \?//p' "$0" >&2
      exit 2
      ;;
  esac
  shift
done

./deploy/install-packages.sh build
if [[ -z $cuda_arch ]]; then
  # nvidia-smi is there and names a GPU of compute capability 8.0 or newer.
  if nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -qE '^([89]|[1-9][0-9])\.'; then
    cuda_arch=native
  else
    cuda_arch=none
    echo "quickstart: no GPU of compute capability 8.0 or newer answers here, so no CUDA kernels are compiled" \
      "(--cuda-arch=90 or all compiles them)"
  fi
fi
options=(-G Ninja -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Release -DNORMD_TESTS=OFF
  # Sources are compiled in batches that read the headers once: a third of the time.
  -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=24)
if [[ $cuda_arch == none ]]; then
  options+=(-DNORMD_CUDA=OFF)
else
  options+=(-DNORMD_CUDA=ON "-DNORMD_CUDA_ARCH=$cuda_arch")
fi
# Said in either case: the folder may have been configured by another command.
ccache=$(command -v ccache || true)
options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$ccache" "-DCMAKE_CUDA_COMPILER_LAUNCHER=$ccache")
cmake -S . -B "$build" -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$(realpath -m "$build")" "${options[@]}"
if [[ -n $configure_only ]]; then exit; fi
cmake --build "$build" --target normd normctl normload

work=$(mktemp -d)
server=""
# Ends the one process that was started here, and waits until it has drained.
stop() {
  if [[ -n $server ]]; then
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" || true
    server=""
  fi
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

data=()
if [[ -n $once ]]; then data=("--data_dir=$work/data"); fi
# In a process group of its own: Ctrl-C reaches this script, which then ends the server in order.
set -m
"$build/normd" "--listen=127.0.0.1:$port,unix:$work/normd.sock" "--admin_listen=127.0.0.1:$admin_port" "--port_file=$work/ports" \
  "${data[@]}" \
  >"$work/normd.log" 2>&1 &
server=$!
set +m

address=""
for ((try = 0; ; ++try)); do
  if [[ -z $address && -s $work/ports ]]; then
    address=$(sed -n 's/^grpc=//p' "$work/ports" | head -n 1)
    admin=$(sed -n 's/^admin=//p' "$work/ports" | head -n 1)
  fi
  if [[ -n $address ]] && "$build/normctl" health --server="$address" >/dev/null 2>&1; then break; fi
  if ! kill -0 "$server" 2>/dev/null || ((try >= 100)); then
    echo "quickstart: normd did not come up:" >&2
    cat "$work/normd.log" >&2
    exit 1
  fi
  sleep 0.2
done
echo "normd serves on $address, admin on http://$admin"

status=0
"$build/normctl" demo --server="$address" || status=$?
if [[ -n $once ]]; then exit "$status"; fi
if [[ $status -ne 0 ]]; then echo "quickstart: the demo failed with $status; normd stays up" >&2; fi

cat <<TEXT

normd is running (process $server). In another terminal:
  $build/normctl health --server=$address
  $build/normctl methods --server=$address
  printf '1,2,3,4\n40,30,20,10\n' > in.csv && $build/normctl layer-norm in.csv -o out.csv --server=$address && cat out.csv
  $build/normload --server=$address
  $build/normload --server=unix:$work/normd.sock --transport=shared      # tensors in shared memory
  curl http://$admin/metrics
Ctrl-C stops it. Its log: $work/normd.log
TEXT
wait "$server"
