package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// untyped are the commands, and whole blocks, of README and docs that TestDocuments does not
// type, each with the reason. What is not here is typed, and must succeed.
var untyped = []exception{
	{"README.md", "a node's network namespace", true, "a picture"},
	{"README.md", "make demo", false, ".ci/run does it, part demo"},
	{"README.md", "make test", false, ".ci/run does it, part test"},
	{"README.md", "ovnkube controller --kubeconfig /etc/kubernetes/admin.conf --nb-address ssl:", true, "wants databases with certificates: TestRaftTyped types controller.md's; the block below is this one over tcp"},
	{"benchmarks-live.md", "ovnkube bench run --backends", false, "layout bridged wants OVS in the kernel, and the agent of a unit: TestRounds"},
	{"benchmarks-live.md", `sed -i "s/gateway-backend`, true, "wants systemd, which no machine of ours runs"},
	{"controller.md", "v1.multus-cni.io/default-network:", true, "an annotation: TestStaticAddresses in controller/reconcile"},
	{"controller.md", "ovs-pki init", true, raftTyped},
	{"controller.md", "install -D -m 600 ovn1", true, raftTyped},
	{"controller.md", "/usr/share/ovn/scripts/ovn-ctl", true, raftTyped},
	{"controller.md", "ovnkube controller", true, raftTyped},
	{"first-generation.md", "", true, "TestTyped types it"},
	{"install.md", "ovs-vsctl add-br breth0", true, "wants OVS in the kernel: TestGatewayVLAN does it"},
	{"install.md", "docker build", true, "wants a registry: make image builds it; on a cluster of kubelets .ci/full deploy types what installs it, with the cluster's values"},
	{"install.md", "kubectl -n ovn-ebpf set image", true, wantsKubelets},
	{"install.md", "helm upgrade ovn-ebpf deploy/helm/ovn-ebpf -n ovn-ebpf --reset-then-reuse-values --set image=", true, wantsKubelets},
	{"install.md", "kubectl -n ovn-ebpf delete deployment/ovn-ebpf-controller", true, wantsKubelets},
	{"install.md", "helm upgrade ovn-ebpf deploy/helm/ovn-ebpf -n ovn-ebpf --reset-then-reuse-values --set uninstall=true", true, wantsKubelets},
	{"install.md", "patches:", true, "part of a kustomization: TestProbesByKustomize renders it"},
	{"monitoring.md", "ovnkube agent …", true, "flags to add, with certificates of the reader's: metric/endpoint tests them"},
	{"networkpolicy.md", "kubectl annotate namespace", true, "kubectl is not among the lab's programs: TestPolicy sets the same annotation"},
	{"networkpolicy.md", "acl_log(ovn_pinctrl0)", true, "a line of a log: TestPolicy reads it"},
	{"systemd.md", "systemctl", false, "no machine of ours runs systemd: TestUnits reads the units"},
	{"takeover.md", "", true, "wants a node of ovn-kubernetes: TestFromOVNKubernetes types what is OVN's, and its agent has these flags"},
	{"upstream.md", "make e2e", false, ".ci/run and .ci/full do it, parts e2e and upstream"},
}

const wantsKubelets = "typed on a cluster of kubelets, as it is here: .ci/full deploy"

const raftTyped = "TestRaftTyped types it"

// exception is a command that is not typed, or with block all of the block of which it is the first.
type exception struct {
	document, begins string
	block            bool
	why              string
}

// endless are commands that go on until they are stopped, and what shows that they work: a
// part of what they print, or with a port what answers there.
var endless = []struct{ begins, says, ready string }{
	{"ovnkube controller", "", "http://127.0.0.1:9409/readyz"},
	{"ovnkube agent", "", "http://127.0.0.1:9410/readyz"},
	{"ovnkube gateway monitor", "from wire", ""},
	{"ovnkube bench serve", "serving", ""},
}

// documents, in the order in which they are read: the first sets up what the others look at.
func documents(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) < 15 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	return append([]string{"../../README.md"}, docs...)
}

// TestDocuments types into a lab what README and docs tell the reader to type.
func TestDocuments(t *testing.T) {
	o := labOptions(t, lab.Options{Nodes: 3, Kube: true, Hosts: true})
	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	downAfter(t, l, o)
	r := newReader(t, l, filepath.Join(o.BinDir, "ovnkube"))
	typed, met := 0, map[int]bool{}
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := document.Blocks(string(text))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		name := filepath.Base(path)
		for _, b := range blocks {
			t.Run(fmt.Sprintf("%s:%d", name, b.Line), func(t *testing.T) { typed += r.block(t, name, b, met) })
		}
		if name == "README.md" {
			r.populate(t)
		}
	}
	for i, u := range untyped {
		if !met[i] {
			t.Errorf("%s has no %q any more", u.document, u.begins)
		}
	}
	t.Logf("%d commands typed", typed)
	if typed < 20 {
		t.Error("are they still found?")
	}
}

// block types what is to be typed of a block, and notes what is not.
func (r *reader) block(t *testing.T, name string, b document.Block, met map[int]bool) (typed int) {
	commands := b.Commands()
	left := func(line string, whole bool) bool {
		i := slices.IndexFunc(untyped, func(u exception) bool {
			return u.document == name && u.block == whole && strings.HasPrefix(line, u.begins)
		})
		if i >= 0 {
			met[i] = true
			t.Logf("not typed: %s: %s", line, untyped[i].why)
		}
		return i >= 0
	}
	if len(commands) == 0 || left(commands[0].Line, true) {
		return 0
	}
	if strings.HasPrefix(commands[0].Line, "[") { // a file, which the next block names
		r.write(t, b.Lines)
		return 0
	}
	for _, c := range commands {
		if !left(c.Line, false) {
			r.command(t, c)
			typed++
		}
	}
	return typed
}
