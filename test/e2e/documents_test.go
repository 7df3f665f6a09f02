package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/document"
	"github.com/ovn-ebpf/ovn-ebpf/test/kubelets"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// untyped are the commands, and whole blocks, of README and docs that TestDocuments does not run,
// each with the reason. All other commands are run and must succeed. TestUntyped checks the
// reasons: tests and parts of CI that they name must exist, and a "no command" must not be a
// command. install.md needs a cluster of kubelets, which package kubelets makes. It types the
// chapters kubelets.Typed.
var untyped = []exception{
	{"README.md", "a node's network namespace", true, noCommand + "a picture"},
	{"README.md", "make demo", false, ".ci/run does it, part demo"},
	{"README.md", "make test", false, ".ci/run does it, part test"},
	{"running.md", "apt install", true, "wants a release: .ci/full installs its package, part release"},
	{"running.md", "tar -xzf", true, "wants a release: .ci/full unpacks its archive, part release; TestInstall has the plugin's command"},
	{"running.md", "helm template", true, "wants the chart of a release: TestRights checks the permissions of its accounts"},
	{"running.md", "ovnkube controller --kubeconfig /etc/openvswitch/kubeconfig --nb-address ssl:", true, "wants databases with certificates: TestRaftTyped types controller.md's; the block over tcp has the same commands"},
	{"running.md", "ovs-vsctl set-ssl", true, "wants databases with certificates: TestRaftTyped types controller.md's; the block over tcp has the same agent"},
	{"running.md", "ovnkube agent --cleanup", true, "removes what the other documents need: .ci/run uninstalls by the same commands, part e2e"},
	{"benchmarks-live.md", "ovnbench run --backends", false, "layout bridged wants OVS in the kernel, and the agent of a unit: TestRounds"},
	{"benchmarks-live.md", `sed -i "s/^OVNKUBE_GATEWAY_BACKEND`, true, "wants systemd, which no machine of ours runs: TestUnits reads the units, TestRounds does the measurement"},
	{"chart.md", "docker build", true, "wants a registry: .ci/full builds the image, part image"},
	{"controller.md", "v1.multus-cni.io/default-network:", true, noCommand + "an annotation: TestStaticAddresses in controller/reconcile"},
	{"controller.md", "ovs-pki init", true, raftTyped},
	{"controller.md", "install -D -m 600 ovn1", true, raftTyped},
	{"controller.md", "/usr/share/ovn/scripts/ovn-ctl", true, raftTyped},
	{"controller.md", "ovnkube controller", true, raftTyped},
	{"explain.md", "ovnkube gateway explain -tcp-flags ack", true, "wants a lab with flows: .ci/full runs TestEndToEnd with them, part native"},
	{"extending.md", "", true, "TestExtending compiles it and runs its tests"},
	{"first-generation.md", "", true, "TestTyped types it"},
	{"install.md", "ovn:", true, noCommand + "a file of values: TestSampleAddressesOccur checks the commands that read it"},
	{"install.md", "kubectl -n ovn-ebpf get pods -l app=ovn-ebpf-central -o wide", true, "wants a member that is lost for good: TestThreeMembers removes servers"},
	{"install.md", "ovs-vsctl add-br breth0", true, "wants OVS in the kernel: TestGatewayVLAN does it"},
	{"lab.md", "", true, "TestTutorial types it, in a lab of its own"},
	{"monitoring.md", "ovnkube agent …", true, "flags to add, with certificates of the reader's: TestClients"},
	{"networkpolicy.md", "acl_log(ovn_pinctrl0)", true, noCommand + "a line of a log: TestPolicy reads it"},
	{"release.md", "make release", false, ".ci/full does it, part release"},
	{"systemd.md", "systemctl", false, "wants systemd, which no machine of ours runs: TestUnits reads the units"},
	{"takeover.md", "", true, "wants a node of ovn-kubernetes: TestFromOVNKubernetes types what is OVN's, and its agent has these flags"},
	{"underlay.md", "make demo-cloud", false, ".ci/full does it, part cloud"},
	{"underlay.md", "ovnlab exec central kubectl get configmap", true, "wants the lab of the demo: TestNoCalls types them in one like it"},
	{"underlay.md", "kubectl apply -f deploy/underlay", true, "wants a cloud: TestUnderlay applies the manifests, and TestNoCalls has controller and agents in this mode"},
	{"underlay.md", "pod ─▶ veth", true, noCommand + "a picture"},
	{"underlay.md", "openstack application credential create", true, "wants a cloud of the reader's: test/cloud makes the same credential, and TestMasterInit_makesAll uses it"},
	{"underlay.md", "clouds:", true, noCommand + "a file: TestMasterInit_makesAll has one with these keys"},
	{"underlay.md", "ovnkube ovn-k8s-underlay master-init", true, "wants a cloud: TestMasterInit_makesAll types it"},
	{"upstream.md", "make e2e", false, ".ci/run does it, part e2e; .ci/full the other suites, part upstream"},
}

const noCommand = "no command: "

const raftTyped = "TestRaftTyped types it"

// exception is a command that is not run. With block, the whole block that it starts is skipped.
type exception struct {
	document, begins string
	block            bool
	why              string
}

// endless are commands that run until stopped, with evidence that they work: a part of their
// output, or a URL that responds.
var endless = []struct{ begins, says, ready string }{
	{"ovnkube controller", "", "http://127.0.0.1:9409/readyz"},
	{"ovnkube agent", "", "http://127.0.0.1:9410/readyz"},
	{"ovnkube gateway monitor", "from wire", ""},
	{"ovnbench serve", "serving", ""},
}

// The reason of each untyped command is true.
func TestUntyped(t *testing.T) {
	tests, parts := map[string]bool{}, map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)

	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		text, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			tests[m[1]] = true
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	part := regexp.MustCompile(`(?m)^part ([a-z0-9-]+) |^([a-z0-9-]+) +\|`) // .ci/run has calls, .ci/full a table

	for _, script := range []string{"run", "full"} {
		text, err := os.ReadFile("../../.ci/" + script)
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range part.FindAllStringSubmatch(string(text), -1) {
			parts[".ci/"+script+" "+m[1]+m[2]] = true
		}
	}

	named, inPart := regexp.MustCompile(`Test[A-Z]\w*`), regexp.MustCompile(`(\.ci/\w+)[^;:]*, part (\S+?)(?:;|$)`)

	for _, u := range untyped {
		checked := false
		for _, name := range named.FindAllString(u.why, -1) {
			if checked = true; !tests[name] {
				t.Errorf("%s, %q: there is no test %s", u.document, u.begins, name)
			}
		}

		for _, m := range inPart.FindAllStringSubmatch(u.why, -1) {
			if checked = true; !parts[m[1]+" "+m[2]] {
				t.Errorf("%s, %q: %s has no part %s", u.document, u.begins, m[1], m[2])
			}
		}

		if strings.HasPrefix(u.why, noCommand) {
			checked = true

			if path, err := exec.LookPath(strings.Fields(u.begins)[0]); err == nil && len(strings.Fields(u.begins)[0]) > 1 {
				t.Errorf("%s, %q: %s is a command", u.document, u.begins, path)
			}
		}

		if !checked {
			t.Errorf("%s, %q: reason %q names no check", u.document, u.begins, u.why)
		}
	}
}

// Every command of install.md is typed on kubelets, or is untyped with a reason.
func TestInstallIsTyped(t *testing.T) {
	text, err := os.ReadFile("../../" + kubelets.InstallDocument)
	if err != nil {
		t.Fatal(err)
	}

	blocks, err := document.Blocks(string(text))
	if err != nil {
		t.Fatal(err)
	}

	if len(blocks) < len(kubelets.Typed()) {
		t.Errorf("%d blocks, and %d chapters are typed", len(blocks), len(kubelets.Typed()))
	}

	for _, b := range blocks {
		first := b.Commands()[0].Line

		left := slices.ContainsFunc(untyped, func(u exception) bool {
			return u.document == filepath.Base(kubelets.InstallDocument) && strings.HasPrefix(first, u.begins)
		})
		if typed := slices.Contains(kubelets.Typed(), b.Heading); typed == left {
			t.Errorf("%s:%d, %q: typed on kubelets %t, untyped for a reason %t", kubelets.InstallDocument, b.Line, b.Heading, typed, left)
		}
	}
}

// documents returns the documents in reading order: the first one sets up the state for the others.
func documents(t *testing.T) []string {
	t.Helper()

	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) < 15 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}

	const running = "../../docs/running.md"

	return append([]string{"../../README.md", running}, slices.DeleteFunc(docs, func(d string) bool { return d == running })...)
}

// TestDocuments runs in a lab the commands of README and docs.
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

		name, ran := filepath.Base(path), false
		for _, b := range blocks {
			t.Run(fmt.Sprintf("%s:%d", name, b.Line), func(t *testing.T) {
				ran = true
				typed += r.block(t, name, b, met)
			})
		}

		if name == "running.md" {
			if !ran { // -run selects another document, as gotestsum does to repeat a failure
				t.Fatal("the commands of running.md set up the lab: run the whole test")
			}

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
		t.Error("no commands found")
	}
}

// block runs the commands of a block, except untyped ones, which it marks as met.
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

	if name == filepath.Base(kubelets.InstallDocument) && slices.Contains(kubelets.Typed(), b.Heading) {
		t.Logf("typed on kubelets: %q", b.Heading)
		return 0
	}

	if strings.HasPrefix(commands[0].Line, "[") { // a file, named by the next block
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
