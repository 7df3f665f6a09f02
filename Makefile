# ovn-ebpf. Run as root on Debian 12; every target installs what it needs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
export OVN_EBPF_CACHE ?= /var/cache/ovn-ebpf
export CGO_ENABLED ?= 0
# The same flags everywhere: what one target compiled, the next one finds.
export GOFLAGS ?= -trimpath -buildvcs=false
# OVN, Open vSwitch and etcd that tests and labs run: debian13, debian12 or host (docs/platforms.md).
export OVN_EBPF_PLATFORM ?= debian13
ifneq ($(OVN_EBPF_PLATFORM),host)
PLATFORM := $(OVN_EBPF_CACHE)/platform/$(OVN_EBPF_PLATFORM)
export PATH := $(PLATFORM)/usr/platform/bin:$(PATH)
export OVS_PKGDATADIR := $(PLATFORM)/usr/share/openvswitch
export OVN_PKGDATADIR := $(PLATFORM)/usr/share/ovn
endif
# The Kubernetes release of labs and kubelets, as in KUBERNETES=1.36.3 (docs/platforms.md).
ifneq ($(KUBERNETES),)
export OVN_EBPF_KUBERNETES := v$(KUBERNETES:v%=%)
endif
NICE := nice -n 5
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
DATE := $(shell TZ=UTC git show -s --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
VERSIONS := github.com/ovn-ebpf/ovn-ebpf/version
LDFLAGS := -s -w -X $(VERSIONS).Version=$(VERSION) -X $(VERSIONS).Commit=$(COMMIT) -X $(VERSIONS).Date=$(DATE)
GOLANGCI := $(OVN_EBPF_CACHE)/tools/golangci-lint
SCALE := bench/results/scale
COMMA := ,
RACE_TESTS := ./agent/... ./atomicfile/... ./authority/... ./bench/... ./bpf/... ./cluster/... ./cmd/... ./cni/... ./controller/... ./keyfile/... ./listener/... ./loop/... ./metric/... ./ovnd/... ./ovsdb/... ./service/...
# nicbridge moves a NIC in one goroutine, and its tests take minutes.
RACE_LEFT := agent/link/nicbridge$$

.PHONY: help
help: ## show this list
	@echo "ovn-ebpf $(VERSION): OVN as the control plane, eBPF at the gateway"; echo
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' Makefile
	@echo; echo "Caches are under $(OVN_EBPF_CACHE) (OVN_EBPF_CACHE); 'make clean' removes them."

.PHONY: build
build: ## build bin/: ovnkube, ovn-k8s-cni-overlay, ovnlab, ovnbench
	@test/packages build
	@echo "build: bin/ (a first build takes two to three minutes)"
	@$(NICE) go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/... ./bench/live/ovnbench

.PHONY: man
man: ## man pages of ovnkube and ovnlab, in build/man
	@test/packages build
	@for program in ovnkube ovnlab; do $(NICE) go test -count=1 ./cmd/$$program -run '^TestMan$$' -man $(CURDIR)/build/man; done

.PHONY: generate
generate: ## make the generated files again: the table of reasons, eBPF objects, OVSDB models
	@test/packages build generate
	@$(NICE) go generate ./ovsdb ./verdict ./bpf

.PHONY: demo
demo: build ## objects in a real API server, controller, OVN, two nodes, pods, traffic, a counter table (KEEP=yes leaves the lab up)
	@test/packages lab
	@$(NICE) go run ./test/e2e/demo -bin $(CURDIR)/bin -cache $(OVN_EBPF_CACHE) $(if $(KEEP),-keep)

.PHONY: demo-cloud
demo-cloud: build ## underlay mode: Keystone and Neutron of OpenStack, VMs as nodes, pods as ports of Neutron networks, traffic on every path (KEEP=yes leaves the lab up)
	@test/packages lab
	@$(NICE) go run ./test/cloud/demo -bin $(CURDIR)/bin -cache $(OVN_EBPF_CACHE) $(if $(KEEP),-keep)

.PHONY: test
test: build ## all tests that run natively: packets, attach, controller, agent, lab end to end (CONTRIBUTING.md has the times)
	@test/packages lab monitoring
	@BIN_DIR=$(CURDIR)/bin $(NICE) test/native

.PHONY: test-unit
test-unit: ## the tests that need neither root nor OVN: plan, services, verdicts, addresses, annotations, settings, tables of metrics
	@$(NICE) test/unit

.PHONY: race
race: ## the packages' tests again under the race detector
	@test/packages build lab race
	@BIN_DIR=$(CURDIR)/bin $(NICE) test/race $$(go list $(RACE_TESTS) | grep -vE '$(RACE_LEFT)')

.PHONY: test-floor
test-floor: ## make test on the oldest OVN and Open vSwitch, of Debian 12
	@$(MAKE) OVN_EBPF_PLATFORM=debian12 test

.PHONY: page
page: ## the status page in a headless Chromium, which it installs (290 MB); its picture in build/page.png
	@test/packages build page || { echo "page: no Chromium: the packages above cannot be installed" >&2; exit 1; }
	@mkdir -p build
	@OVN_EBPF_SCREENSHOT=$(CURDIR)/build/page.png $(NICE) go test -count=1 -run '^TestChromium$$' ./agent/page

.PHONY: screenshot
screenshot: build ## docs/status-page.png, taken again: the page of a node in a lab, with real traffic
	@test/packages lab page
	@test/screenshot

.PHONY: e2e
e2e: build ## on three kubelets: docs/install.md as typed (install, update, uninstall), and upstream's conformance tests of networking (SUITES=... for others, KUBERNETES=1.36.3 for another release)
	@test/packages lab kubelets
	@$(if $(filter -down,$(SUITES)),,rm -rf build/e2e-release && $(MAKE) release VERSION=0.0.0-e2e ARCH=$$(go env GOARCH) OUT=build/e2e-release CHANGES=yes >/dev/null)
	@$(NICE) go run ./test/kubelets/run -bin $(CURDIR)/bin -release build/e2e-release -cache $(OVN_EBPF_CACHE) -logs $(CURDIR)/build/e2e $(or $(SUITES),-uninstall conformance)

.PHONY: test-cloud
# TestJoin has a time limit, so it runs alone. Each other group has a cloud of its own, and waits for
# one process of Neutron at a time, so two groups fit two cores.
CLOUD_TEST = BIN_DIR=$(CURDIR)/bin OVN_EBPF_CLOUD=yes $(NICE) go test -count=1 -timeout 45m -v ./test/cloud
CLOUD_GROUP = TestMasterInit|TestNoCalls|TestRefused|TestSlowNeutron
test-cloud: build ## the controller's part of underlay mode at a real Keystone and Neutron of OpenStack
	@test/packages lab
	@$(CLOUD_TEST) -run '^TestJoin$$'
	@$(CLOUD_TEST) -run '$(CLOUD_GROUP)' & first=$$!; \
		$(CLOUD_TEST) -skip '$(CLOUD_GROUP)|TestJoin'; second=$$?; wait $$first && exit $$second

.PHONY: test-vm
test-vm: build ## kernel datapath in a VM: 6.12 with one path of each kind in each layout, programs with clsact on 6.1
	@test/packages lab vm
	@test/vm/suite

.PHONY: test-vm-short
test-vm-short: build ## in VMs: one path of each kind in layout direct on 6.12, and the verifier of 6.1
	@test/packages lab vm
	@test/vm/suite short verifier

.PHONY: bench
bench: ## instructions per operation in a VM (BOOTS=1, KEEP=yes for the documents); KIND=gate CI's part of it, full other kernels and sizes, watched counting and monitor, native Go benchmarks here
	@test/packages build vm lab
	@$(NICE) go run ./bench/run $(or $(BENCH_$(or $(KIND),packets)),$(error KIND=$(KIND): want packets, gate, full, native or watched)) $(if $(KEEP),-keep)
	@$(if $(KEEP),$(MAKE) bench-documents)
BENCH_packets = packets -boots $(or $(BOOTS),1)
BENCH_gate = packets -short -boots $(or $(BOOTS),1)
BENCH_full := packets -full
BENCH_native := native
BENCH_watched := watched

.PHONY: bench-gate
bench-gate: ## what CI runs of it, in one boot each; fails where a ratio is worse than bench/baseline.json allows
	@test/packages build vm lab
	@$(NICE) go run ./bench/run -short -baseline bench/baseline.json

.PHONY: bench-bound
bench-bound: build ## in a VM: how long connections with shortcuts last after a policy has forbidden them, 100 of each kind (TRIES=100, KEEP=yes for bench/results)
	@test/packages lab vm
	@$(NICE) go run ./bench/run bound -tries $(or $(TRIES),100) $(if $(KEEP),-keep)

.PHONY: bench-accept
bench-accept: ## make the last run (make bench KIND=gate BOOTS=3) the baseline, and the text of its commit: REASON='why'
	@$(NICE) go run ./bench/run accept -reason '$(subst ','\'',$(REASON))'

.PHONY: bench-scale
bench-scale: build ## the controller and a real node on 10 to 300 nodes, on both platforms, and with up to 30,000 pods; forty minutes, writes docs/scale.md
	@OVN_EBPF_PLATFORM=debian13 test/packages build lab
	@for n in 10 100 300; do for p in debian13 debian12; do \
		OVN_EBPF_PLATFORM=$$p $(NICE) go run ./bench/scale -nodes $$n -pods 3000 -allocate 0 -probes $$([ $$n = 300 ] && echo 40 || echo 100) \
			-out $(SCALE)/$$p-$$n.json || exit 1; \
	done; done
	@OVN_EBPF_PLATFORM=debian13 $(NICE) go run ./bench/scale -probes 0 -pods 1000,10000,30000 -out $(SCALE)/debian13-100-pods.json
	@$(MAKE) bench-documents

.PHONY: bench-documents
bench-documents: ## the benchmarks' documents, and figures in prose, from the kept runs in bench/results
	@$(NICE) go run ./bench/run documents
	@$(NICE) go run ./bench/scale -report $(subst $() ,$(COMMA),$(filter-out %/debian13-100.json,$(wildcard $(SCALE)/*.json)) $(SCALE)/debian13-100.json) -document docs/scale.md >/dev/null

READERS := agent/gateway:ParsePorts agent/ovs:ParseFrontFlows agent/link/nicbridge:Attrs agent/bfd:Parse agent/service:Edits \
	cmd/ovnkube/setting:Parse cluster/annotation:ParseRequest cluster/annotation:ParsePod cluster/annotation:ParsePoolPorts agent/pool:DecodeState controller/raft:Parse
.PHONY: fuzz
fuzz: ## fuzz the parser, the model and the programs for FUZZTIME each (default 30s, 15s, 15s), readers of text for READERTIME (2s)
	@test/packages build
	@$(NICE) go test ./verdict -run '^$$' -fuzz '^FuzzParse$$' -fuzztime $(or $(FUZZTIME),30s)
	@$(NICE) go test ./verdict -run '^$$' -fuzz '^FuzzDecide$$' -fuzztime $(or $(FUZZTIME),15s)
	@$(NICE) go test ./bpf -run '^$$' -fuzz '^FuzzPrograms$$' -fuzzminimizetime 10x -fuzztime $(or $(FUZZTIME),15s)
	@for target in $(READERS); do \
		$(NICE) go test "./$${target%:*}" -run '^$$' -fuzz "^Fuzz$${target#*:}$$" -fuzztime $(or $(READERTIME),2s) || exit 1; \
	done

.PHONY: lint
lint: ## vet, golangci-lint (staticcheck, gofumpt, import law), clang-format, shellcheck, generated files
	@test/packages build lint
	@test/lint $(GOLANGCI)

.PHONY: vulncheck
vulncheck: ## known vulnerabilities in the code that is called (govulncheck): "Error 3" if any, "Error 4" if its database cannot be reached
	@test/packages build
	@$(NICE) test/vulncheck $(OVN_EBPF_CACHE)/tools/govulncheck

.PHONY: mutate
mutate: ## change operators and see whether tests notice (docs/mutation.md): PACKAGES="controller/ipam ...", FILES=, RUN=, SKIP=, SAMPLE=100 SEED=1
	@test/packages build
	@$(NICE) go run ./test/mutate $(if $(SAMPLE),-sample $(SAMPLE)) $(if $(SEED),-seed $(SEED)) -files '$(FILES)' -run '$(RUN)' -skip '$(SKIP)' \
		$(or $(PACKAGES),controller/ipam cmd/ovnkube/setting service agent/service controller/plan)

.PHONY: image
image: ## build/image: both container images for amd64 and arm64, of OVN and Open vSwitch those of Debian 13
	@test/packages build release
	@rm -rf build/image
	@$(NICE) go -C deploy/release build -o $(CURDIR)/build/release-tool . && build/release-tool -images -version 0.0.0-dev -changes $(if $(ARCH),-arch $(ARCH)) -out build/image

.PHONY: release
release: ## tarballs, Debian packages, images, chart, SPDX and checksums of the commit, for amd64 and arm64: VERSION=1.2.3, in build/release
	@test/packages build
	@$(NICE) go -C deploy/release build -o $(CURDIR)/build/release-tool . && build/release-tool -version '$(VERSION)' $(if $(ARCH),-arch $(ARCH)) $(if $(CHANGES),-changes) -out $(or $(OUT),build/release)

.PHONY: clean
clean: ## remove bin, build and the caches
	@echo "clean: bin build $(OVN_EBPF_CACHE)"
	@rm -rf bin build $(OVN_EBPF_CACHE)
