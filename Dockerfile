# syntax=docker/dockerfile:1
# Built on Debian 12 and run on distroless Debian 12: no shell, no package manager, no root.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
# The dependencies alone, so that a change of our own code does not build them again.
RUN mkdir src \
    && echo '//! Stands in for the library.' > src/lib.rs \
    && printf '//! Stands in for the program.\nfn main() {}\n' > src/main.rs \
    && cargo build --locked --release \
    && rm -r src
COPY src src
RUN touch src/lib.rs src/main.rs && cargo build --locked --release && mkdir /state

# A health check runs inside the container, and there is nothing in it to run. Busybox acts as the tool
# that it is called by, so under this name it is wget and no shell.
FROM busybox:1.37-musl AS wget

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/tigertally /usr/local/bin/tigertally
COPY --from=wget /bin/busybox /usr/local/bin/wget
# A container that listens on its own loopback cannot be reached. `insecure` says that the network around it
# keeps others out, for as long as there is no authentication; see README, "Deploy".
ENV TIGERTALLY_LISTEN=0.0.0.0:8090 \
    TIGERTALLY_STORE__PATH=/var/lib/tigertally \
    TIGERTALLY_INSECURE=true \
    TIGERTALLY_TELEMETRY__LOG_FORMAT=json
# Conversations outlive the container when a volume is mounted here.
COPY --from=build --chown=nonroot:nonroot --chmod=700 /state /var/lib/tigertally
VOLUME /var/lib/tigertally
EXPOSE 8090
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["/usr/local/bin/wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8090/health"]
ENTRYPOINT ["/usr/local/bin/tigertally"]
CMD ["serve"]
