package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// plant is a defect: replacements of lines in one source file.
type plant struct {
	file  string
	lines map[string]string
}

// planted is a campaign that must notice a fault.
type planted struct {
	name, lab string
	campaign  func(context.Context, Options) (*Report, error)
	long      time.Duration
	only      string
	plant     plant
	broken    string // expected violation
}

func allPlanted() []planted {
	return []planted{
		{
			"faults: a lost pod port is not restored", "f", Faults, 10 * time.Second, "^port of a pod deleted",
			plant{"agent/podnet/keep.go", map[string]string{"\treturn k.Interfaces.connect(ctx, p)\n": "\treturn nil\n"}},
			"pod to pod, one node",
		},
		{
			"api: load balancers change without a limit", "a", API, 20 * time.Second, "^attack: many frontends",
			plant{"controller/reconcile/throttle.go", map[string]string{
				"\tunitsPerSecond = 512\n": "\tunitsPerSecond = 1 << 20\n",
				"\tunitsAtOnce    = 1024 ": "\tunitsAtOnce    = 1 << 20 ",
				"\tunitsPerCommit = 128 ":  "\tunitsPerCommit = 1 << 20 ",
				"\ttotalPerSecond = 512\n": "\ttotalPerSecond = 1 << 20\n",
			}},
			"a victim's pods, ",
		},
		{
			"api: a removed UDP endpoint ends the host's own sockets", "a", API, 20 * time.Second, "^attack: a slice names a server",
			plant{"agent/gateway/tables.go", map[string]string{
				"\t_, err := link.DestroyUDP(gone, s.sock.Translated)\n": "\t_, err := link.DestroyUDP(gone, func(uint64, netip.AddrPort) (bool, error) { return true, nil })\n",
			}},
			"host to outside, udp v4 lost ",
		},
		{
			"api: any slice with the control plane's label is trusted", "a", API, 20 * time.Second, "^attack: a slice of the control plane",
			plant{"service/endpoint.go", map[string]string{"\tcase !s.cfg.TrustEndpointSlices:\n": "\tcase false:\n"}},
			"a NodePort opens ssh",
		},
		{
			"api: agents serve frontends at the API server", "b", API, 20 * time.Second, "^attack: external IPs of the API server",
			plant{"agent/service/node.go", map[string]string{"\tif n.Cluster.ControlPlane.Keeps(proto, at) != \"\" {\n": "\tif false {\n"}},
			"host to API server, https v4 lost ",
		},
		{
			"api: host ports are served at loopback addresses", "a", API, 20 * time.Second, "^attack: host ports",
			plant{"agent/service/pod.go", map[string]string{", NotLoopback: true}\n": ", NotLoopback: false}\n"}},
			"host to its own server at 127.0.0.",
		},
		{
			"wire: the agent does not read the host's raw sockets", "w", Wire, 50 * time.Second, "",
			plant{"agent/gateway/host.go", map[string]string{"\traw, errRaw := link.RawProtos()\n": "\tvar raw []link.HostProto\n\tvar errRaw error\n"}},
			"VRRP, OSPF",
		},
		{
			"wire: pods may send to the masquerade networks", "w", Wire, 10 * time.Second, "",
			plant{"controller/plan/masquerade.go", map[string]string{
				"fmt.Sprintf(\"(ip4.dst == %s || ip6.dst == %s)\",": "fmt.Sprintf(\"0 && (ip4.dst == %s || ip6.dst == %s)\",",
			}},
			"against a policy to the host of node",
		},
		{
			"wire: pods may send tunnel packets", "w", Wire, 10 * time.Second, "",
			plant{"controller/plan/tunnel.go", map[string]string{
				"fmt.Sprintf(\"udp.dst == %d\", services.TunnelPort) }\n": "fmt.Sprintf(\"0 && udp.dst == %d\", services.TunnelPort) }\n",
			}},
			"ovn-k8s-mp0 of node1, as tunnel packets of a pod",
		},
	}
}

// TestPlantsFit: the sources still have the lines in which the faults are planted.
func TestPlantsFit(t *testing.T) {
	for _, tt := range allPlanted() {
		if _, err := tt.plant.source("../.."); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// Campaigns find the faults that they are for. Each runs on a build with a planted fault and must
// report a violation. The kind of step is chosen to keep the test short. The environment may set a
// longer time.
func TestPlanted(t *testing.T) {
	for _, tt := range allPlanted() {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t, tt.lab)
			o.Only, o.First, o.Heal, o.For = regexp.MustCompile(tt.only), true, 15*time.Second, max(o.For, tt.long)
			o.Lab.BinDir = tt.plant.build(t, o.Lab.BinDir)

			report, err := tt.campaign(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}

			t.Logf("the campaign says: %s", strings.Join(report.Broken, "\n"))

			if !strings.Contains(strings.Join(report.Broken, "\n"), tt.broken) {
				t.Errorf("the campaign does not notice: it says %q, which lacks %q; figures %v", report.Broken, tt.broken, report.Figures)
			}
		})
	}
}

// source returns the text of the file with the fault.
func (p plant) source(top string) (string, error) {
	text, err := os.ReadFile(filepath.Join(top, p.file))
	if err != nil {
		return "", err
	}

	defect := string(text)
	for line, instead := range p.lines {
		if n := strings.Count(defect, line); n != 1 {
			return "", fmt.Errorf("%s has %q %d times: plant the fault elsewhere", p.file, line, n)
		}

		defect = strings.Replace(defect, line, instead, 1)
	}

	return defect, nil
}

// build builds the product with the fault, and an unmodified plugin, and returns their directory.
func (p plant) build(t *testing.T, bin string) string {
	t.Helper()

	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}

	defect, err := p.source(top)
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(top, p.file)
	dir := t.TempDir()

	planted, overlay := filepath.Join(dir, "planted.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(planted, []byte(defect), 0o644); err != nil {
		t.Fatal(err)
	}

	b, err := json.Marshal(map[string]map[string]string{"Replace": {file: planted}})
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(overlay, b, 0o644); err != nil {
		t.Fatal(err)
	}

	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", filepath.Join(dir, "ovnkube"), "./cmd/ovnkube")

	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with the planted fault: %v: %s", err, out)
	}

	for _, other := range []string{"ovn-k8s-cni-overlay", "ovnlab"} {
		if err := os.Symlink(filepath.Join(bin, other), filepath.Join(dir, other)); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}
