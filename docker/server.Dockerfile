# The API server: no tensors, no weights.
#   docker build --file docker/server.Dockerfile --tag assay-server:VERSION .

FROM node:22-bookworm-slim AS dashboard
WORKDIR /src/server/dashboard
COPY server/dashboard/package.json server/dashboard/package-lock.json ./
RUN --mount=type=cache,target=/root/.npm npm ci
# Its types are made from the description of the API.
COPY openapi/openapi.json /src/openapi/
COPY server/dashboard ./
RUN npm run build

FROM rust:1.94-bookworm AS build
WORKDIR /src
COPY . .
COPY --from=dashboard /src/server/dashboard/dist server/dashboard/dist
# The cache is not part of the image, so what is wanted of it is copied out.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package assay-server \
    && install -D --strip target/release/assay-server /out/assay-server

FROM debian:bookworm-slim
# Certificates of hubs and of receivers of webhooks. Versions are those of the release that the base
# image is of: a pinned one would be gone with the next fix.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/assay-server /usr/local/bin/assay-server
LABEL org.opencontainers.image.title="assay-server" \
      org.opencontainers.image.description="API server of Assay, evaluation as a service for language models" \
      org.opencontainers.image.licenses="Apache-2.0"
# A number, so that Kubernetes can tell that it is not root.
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/assay-server"]
CMD ["serve", "--listen", "0.0.0.0:8080"]
