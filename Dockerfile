# normd for the CPU: the server, its two clients, the shared libraries that they load, nothing else.
#   docker build -t normd .
#   docker run --read-only --tmpfs /tmp --cap-drop ALL -p 8001:8001 -p 8002:8002 -v normd-data:/data normd
# deploy/container-test.sh builds and runs this file without an engine and without a registry.
FROM docker.io/library/debian:bookworm-slim AS build
COPY deploy/install-packages.sh /src/deploy/
COPY deploy/packages/build.txt /src/deploy/packages/
RUN /src/deploy/install-packages.sh build
COPY CMakeLists.txt /src/
COPY proto /src/proto
COPY kernels /src/kernels
COPY server /src/server
COPY client /src/client
RUN cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DNORMD_TESTS=OFF -DNORMD_CUDA=OFF \
      -DCMAKE_RUNTIME_OUTPUT_DIRECTORY=/build \
 && cmake --build /build --target normd normctl normload
COPY deploy/collect-image.sh /src/deploy/
COPY deploy/packages/runtime.txt /src/deploy/packages/
RUN /src/deploy/collect-image.sh /image /build/normd /build/normctl /build/normload

FROM scratch
LABEL org.opencontainers.image.title="normd" \
      org.opencontainers.image.description="A gRPC service that normalises tensors" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim" \
      normd.device="cpu" \
      normd.sbom="/usr/share/doc/normd/packages.txt"
COPY --from=build /image /
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8001 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/usr/bin/normctl", "health"]
# In a container every interface is the container's own; plain text is a choice, so it is spelled out. Flags and -e win.
ENV NORMD_LISTEN=0.0.0.0:8001 NORMD_PLAINTEXT=true NORMD_ADMIN_LISTEN=0.0.0.0:8002 NORMD_DATA_DIR=/data
ENTRYPOINT ["/usr/bin/normd"]
