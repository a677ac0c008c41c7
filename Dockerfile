# normd: the server, its two clients, the shared libraries that they load, nothing else.
#   docker build -t normd .
#   docker run --read-only --cap-drop ALL --network host -e NORMD_LISTEN=127.0.0.1:8001,unix:/run/normd/normd.sock \
#     -v normd-data:/data normd
# With CUDA kernels, compiled by the toolkit (12.5 or newer) of the machine that builds:
#   docker build -t normd:cuda --build-arg NORMD_CUDA=ON --build-context cuda=/usr/local/cuda .
# BASE is a Debian 12. SOURCE_DATE_EPOCH is the time of every file in the image, REVISION the commit that it is made of.
# deploy/container-test.sh builds and runs this file without an engine and without a registry.
ARG BASE=docker.io/library/debian:bookworm-slim
ARG NORMD_CUDA=OFF

# The place of the CUDA Toolkit, which is mounted and not copied. --build-context cuda=... takes the place of this stage.
FROM scratch AS cuda

FROM ${BASE} AS build
COPY deploy/install-packages.sh /src/deploy/
COPY deploy/packages/build.txt /src/deploy/packages/
RUN /src/deploy/install-packages.sh build
COPY CMakeLists.txt /src/
COPY proto /src/proto
COPY kernels /src/kernels
COPY server /src/server
COPY client /src/client
ARG NORMD_CUDA
ARG NORMD_CUDA_ARCH=all
# Sources are compiled in batches that read the headers once: a third of the time.
RUN --mount=type=bind,from=cuda,target=/usr/local/cuda \
    if [ "$NORMD_CUDA" = ON ] && [ ! -x /usr/local/cuda/bin/nvcc ]; then \
      echo "NORMD_CUDA=ON, but there is no bin/nvcc in the build context cuda: --build-context cuda=TOOLKIT" >&2; exit 1; \
    fi \
 && PATH=/usr/local/cuda/bin:$PATH cmake -S /src -B /src/build/release -G Ninja -DCMAKE_CXX_COMPILER=g++ \
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=24 -DNORMD_TESTS=OFF \
      -DCMAKE_RUNTIME_OUTPUT_DIRECTORY=/src/build/release "-DNORMD_CUDA=$NORMD_CUDA" \
      "-DNORMD_CUDA_REQUIRED=$NORMD_CUDA" "-DNORMD_CUDA_ARCH=$NORMD_CUDA_ARCH" \
 && PATH=/usr/local/cuda/bin:$PATH cmake --build /src/build/release --target normd normctl normload
COPY deploy/collect-image.sh deploy/write-sbom.sh /src/deploy/
COPY deploy/packages/runtime.txt /src/deploy/packages/
ARG SOURCE_DATE_EPOCH=0
RUN --mount=type=bind,from=cuda,target=/usr/local/cuda \
    SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH /src/deploy/collect-image.sh /image /src/build/release normd normctl normload

FROM scratch
ARG BASE
ARG NORMD_CUDA
ARG REVISION=""
LABEL org.opencontainers.image.title="normd" \
      org.opencontainers.image.description="A gRPC service that normalises tensors" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}" \
      normd.cuda="${NORMD_CUDA}" \
      normd.sbom="/usr/share/doc/normd/sbom.spdx.json"
COPY --from=build /image /
USER 10001:10001
WORKDIR /data
# /run/normd has the Unix socket: a tmpfs does.
VOLUME ["/data", "/run/normd"]
EXPOSE 8001 8002
STOPSIGNAL SIGTERM
# All interfaces of the container, so normd does not start before it is told how it is protected: --tls_certificate and
# --tls_key, or NORMD_PLAINTEXT=true. The Unix socket is plain whatever TCP is: for the health check and for docker exec.
ENV NORMD_LISTEN=[::]:8001,unix:/run/normd/normd.sock NORMD_SERVER=unix:/run/normd/normd.sock NORMD_DATA_DIR=/data
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/usr/bin/normctl", "health"]
ENTRYPOINT ["/usr/bin/normd"]
