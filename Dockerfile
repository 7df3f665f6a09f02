# One small image with both programs. Bases are arguments, so that a registry
# of your own, or a base made by debootstrap, can be used.
ARG BUILD_BASE=golang:1.26-bookworm
ARG BASE=debian:12-slim

FROM ${BUILD_BASE} AS build
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o /out/ ./cmd/ovnkube ./cmd/ovn-k8s-cni-overlay

FROM ${BASE}
# ovs-ofctl writes the flows of the gateway bridge, nft the masquerading of local mode.
RUN apt-get update && apt-get install -y --no-install-recommends openvswitch-common nftables && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ovnkube /out/ovn-k8s-cni-overlay /usr/bin/
ENTRYPOINT ["/usr/bin/ovnkube"]
