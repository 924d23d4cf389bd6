# syntax=docker/dockerfile:1
# Built on Debian 12 and run on distroless Debian 12: no shell, no package manager, no root. For both platforms
# at once (the compiler runs on the builder's own platform, so that nothing is emulated):
#
#   docker buildx build --platform linux/amd64,linux/arm64 --tag registry.example/tigertally:0.1.0 --push .

FROM --platform=$BUILDPLATFORM rust:1.95-bookworm AS build
SHELL ["/bin/bash", "-o", "pipefail", "-euc"]
ARG TARGETARCH
WORKDIR /src
# With it the program bears the list of what it was built of, so that scanners know it from the image alone.
RUN cargo install --locked --root /usr/local cargo-auditable@0.7.7
# For another platform than the builder's, its C compiler and library: `ring` brings C and assembly.
# hadolint ignore=DL3008
RUN case "$TARGETARCH" in \
        amd64) cpu=x86_64 gcc=gcc-x86-64-linux-gnu ;; \
        arm64) cpu=aarch64 gcc=gcc-aarch64-linux-gnu ;; \
        *) echo "no build for '$TARGETARCH': amd64 and arm64 are known" >&2; exit 1 ;; \
    esac; \
    if [ "$TARGETARCH" != "$(dpkg --print-architecture)" ]; then \
        apt-get update; \
        apt-get install -y --no-install-recommends "$gcc" "libc6-dev-$TARGETARCH-cross"; \
        rm -rf /var/lib/apt/lists/*; \
    fi; \
    rustup target add "$cpu-unknown-linux-gnu"; \
    mkdir .cargo; \
    printf '%s\n' \
        "[build]" "target = '$cpu-unknown-linux-gnu'" \
        "[target.$cpu-unknown-linux-gnu]" "linker = '$cpu-linux-gnu-gcc'" \
        "[env]" "CC_${cpu}_unknown_linux_gnu = '$cpu-linux-gnu-gcc'" \
        > .cargo/config.toml
COPY Cargo.toml Cargo.lock ./
# Not built, but Cargo.toml names them.
COPY benches benches
# The dependencies alone, so that a change of our own code does not build them again.
RUN mkdir src; \
    echo '//! Stands in for the library.' > src/lib.rs; \
    printf '//! Stands in for the program.\nfn main() {}\n' > src/main.rs; \
    cargo auditable build --locked --release; \
    rm -r src
# The demo plays with one of the settings.
COPY config config
COPY src src
RUN touch src/lib.rs src/main.rs; \
    cargo auditable build --locked --release; \
    cp target/*/release/tigertally /tigertally; \
    mkdir /state

FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="tigertally" \
      org.opencontainers.image.source="https://github.com/tigertally/tigertally" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /tigertally /usr/local/bin/tigertally
# A container that listens on its own loopback cannot be reached. `insecure` says that the network around it
# keeps others out, for as long as there is no authentication; see docs/deploy.md.
ENV TIGERTALLY_LISTEN=0.0.0.0:8090 \
    TIGERTALLY_STORE__PATH=/var/lib/tigertally \
    TIGERTALLY_INSECURE=true \
    TIGERTALLY_TELEMETRY__LOG_FORMAT=json
# Conversations outlive the container when a volume is mounted here. Nothing else is ever written.
COPY --from=build --chown=65532:65532 --chmod=700 /state /var/lib/tigertally
VOLUME /var/lib/tigertally
# By number, so that Kubernetes can see that it is not root.
USER 65532:65532
EXPOSE 8090
# The program asks itself: there is nothing else in the image that could.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["/usr/local/bin/tigertally", "health", "--live", "--timeout", "2s"]
ENTRYPOINT ["/usr/local/bin/tigertally"]
CMD ["serve"]
