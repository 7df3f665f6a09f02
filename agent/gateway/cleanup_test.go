package gateway

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Filters on pods' devices are found by their name when their pins are gone. Filters of others stay.
func TestRemoveFiltersOfPods(t *testing.T) {
	dir := t.TempDir()

	mounted := filepath.Join(dir, "bpf")
	if err := os.Mkdir(mounted, 0o700); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = syscall.Unmount(mounted, 0) })

	pinDir := filepath.Join(mounted, "node")

	testnode.Run(t, "ip", "link", "add", "pod0", "type", "veth", "peer", "name", "pod0p")
	t.Cleanup(func() { _ = link.Delete("pod0") })

	pod, err := link.Get("pod0")
	if err != nil {
		t.Fatal(err)
	}

	clsact := clsactFuncs()
	attach := clsact.Attach
	clsact.Attach = func(ifindex, progFD int, name string, egress bool) error {
		if err := attach(ifindex, progFD, name, egress); err != nil {
			return err
		}

		return attach(ifindex, progFD, "pod_ingress_of_another", egress)
	}

	gw, err := bpf.Open(bpf.Options{
		PinDir: pinDir, Clsact: clsact, ForceClsact: true, Shortcuts: bpf.ShortcutOptions{On: true, Entries: 64}, Log: slog.New(slog.DiscardHandler),
		Config: bpf.Config{Config: verdict.Config{NodeMAC: verdict.MAC{2, 0, 0, 0, 0, 0x11}, SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, GenevePort: model.TunnelPort}},
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := takeDown(gw); err != nil {
			t.Error(err)
		}
	})

	names := func() (out []string) {
		t.Helper()

		filters, err := link.ClsactFilters(func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range filters {
			if f.Ifindex == pod.Index {
				out = append(out, f.Name)
			}
		}

		return out
	}

	if hasHookPins(pinDir) {
		t.Error("pins before anything is attached")
	}

	if err := gw.AttachPod(pod.Index, 1400, true); err != nil {
		t.Fatal(err)
	}

	if got := names(); len(got) != 2 {
		t.Fatalf("filters %q, want two", got)
	}

	if !hasHookPins(pinDir) || hasGatewayPins(pinDir) {
		t.Errorf("with a program at a pod's device alone: hooked %t, deciding %t", hasHookPins(pinDir), hasGatewayPins(pinDir))
	}

	pins, err := filepath.Glob(filepath.Join(pinDir, bpf.PodPins))
	if err != nil || len(pins) != 1 {
		t.Fatalf("pins %q, error %v", pins, err)
	}

	if err := os.Remove(pins[0]); err != nil {
		t.Fatal(err)
	}

	if err := removeFilters(); err != nil {
		t.Fatal(err)
	}

	if got := names(); len(got) != 1 || got[0] != "pod_ingress_of_another" {
		t.Errorf("filters %q, want the foreign one", got)
	}
}
