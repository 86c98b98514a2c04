# The worker with libtorch; for processors, or with CUDA for both:
#   docker build --file docker/worker.Dockerfile --tag assay-worker:VERSION .
#   docker build --file docker/worker.Dockerfile --build-arg ASSAY_GPU=yes --tag assay-worker:VERSION-cuda .

FROM rust:1.94-bookworm AS build
# yes or no: with or without libtorch's CUDA part.
ARG ASSAY_GPU=no
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-pip unzip \
    && rm -rf /var/lib/apt/lists/*
# The worker looks for libtorch where it was built, so both stages have the same folder.
WORKDIR /opt/assay
COPY scripts/lib.sh scripts/link-libtorch.sh scripts/setup-libtorch.sh scripts/libtorch-*.txt scripts/
RUN scripts/setup-libtorch.sh
COPY . .
# The cache is not part of the image, so what is wanted of it is copied out. Headers are not needed to run.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/opt/assay/target \
    cargo build --release --locked --package assay-worker \
    && install -D --strip target/release/assay-worker /out/assay-worker \
    && rm -rf build/wheels/torch/include

FROM debian:bookworm-slim
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/assay/build/wheels /opt/assay/build/wheels
COPY --from=build /out/assay-worker /usr/local/bin/assay-worker
LABEL org.opencontainers.image.title="assay-worker" \
      org.opencontainers.image.description="Worker of Assay, evaluation as a service for language models" \
      org.opencontainers.image.licenses="Apache-2.0"
# What the container runtime has to bring of the driver. Compiled kernels are cached below HOME.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    HOME=/tmp
# A number, so that Kubernetes can tell that it is not root.
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["/usr/local/bin/assay-worker"]
CMD ["run"]
