# Two small images with both programs, without shell and package manager. By default, ovn-ebpf: for
# controller, agent and plugin, with the tools that these run. With --target ovn, ovn-ebpf-ovn: with the
# daemons and tools of OVN and Open vSwitch. Bases are arguments, so that a registry of your own, or
# bases made by debootstrap, can be used. The defaults are pinned: a tag can be moved by its owner.
# The images of a release have Debian 13's OVN and Open vSwitch (make image, deploy/release).
ARG BUILD_BASE=golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d
ARG BASE=debian:bookworm-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171

FROM ${BUILD_BASE} AS build
WORKDIR /src
COPY . .
ARG VERSION=dev
ARG COMMIT=
ARG DATE=
RUN V=github.com/ovn-ebpf/ovn-ebpf/version && \
    CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X $V.Version=${VERSION} -X $V.Commit=${COMMIT} -X $V.Date=${DATE}" -o /out/ ./cmd/ovnkube ./cmd/ovn-k8s-cni-overlay

FROM ${BASE} AS tools
# deploy/release/debian.go has the same lists, and says what each program is for.
RUN printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d && \
    apt-get update && apt-get install -y --no-install-recommends openvswitch-switch ovn-central ovn-host nftables
# Runtimes name network namespaces by /var/run, Open vSwitch its sockets.
RUN collect() { out=$1; shift; \
        mkdir -p $out/tmp $out/usr/bin $out/usr/sbin $out/usr/lib $out/usr/lib64 && chmod 1777 $out/tmp && \
        for d in bin sbin lib lib64; do ln -s usr/$d $out/$d; done && \
        mkdir $out/run $out/var && ln -s ../run $out/var/run && \
        for f in "$@"; do \
            for l in $f $(ldd $f | grep -o '/[^ ]*'); do mkdir -p $out$(dirname $l) && cp -L $l $out$l; done; \
        done && \
        for l in $(find $out -type f -printf '/%P\n'); do dpkg -S $l 2>/dev/null || dpkg -S ${l#/usr}; done | cut -d: -f1 | sort -u | \
            xargs dpkg-query -W -f '${Package} ${Version}\n' >$out/packages; \
    } && \
    collect /out/ovn-ebpf /usr/bin/ovs-ofctl /usr/sbin/nft /usr/bin/ovsdb-client /usr/bin/ovs-vsctl && \
    collect /out/ovn /usr/bin/ovs-ofctl /usr/sbin/ovsdb-server /usr/bin/ovsdb-tool /usr/bin/ovsdb-client \
        /usr/bin/ovs-vsctl /usr/bin/ovs-appctl /usr/bin/ovs-dpctl /usr/lib/openvswitch-switch/ovs-vswitchd \
        /usr/bin/ovn-controller /usr/bin/ovn-northd /usr/bin/ovn-nbctl /usr/bin/ovn-sbctl /usr/bin/ovn-appctl && \
    for s in openvswitch/vswitch ovn/ovn-nb ovn/ovn-sb; do mkdir -p /out/ovn/usr/share/$(dirname $s) && cp /usr/share/$s.ovsschema /out/ovn/usr/share/$(dirname $s); done && \
    ln -s ../lib/openvswitch-switch/ovs-vswitchd /out/ovn/usr/sbin/ovs-vswitchd

FROM scratch AS ovn
COPY --from=tools /out/ovn/ /
COPY --from=build /out/ /usr/bin/
ENV PATH=/usr/sbin:/usr/bin
ENTRYPOINT ["/usr/bin/ovnkube"]

FROM scratch
COPY --from=tools /out/ovn-ebpf/ /
COPY --from=build /out/ /usr/bin/
ENV PATH=/usr/sbin:/usr/bin
ENTRYPOINT ["/usr/bin/ovnkube"]
