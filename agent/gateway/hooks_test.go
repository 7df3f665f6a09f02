package gateway

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestHooksClsact checks the attachments in "ovnkube status" where the kernel has only clsact: each
// hook with its device, none after the filters were deleted (the pins stay), and foreign filters
// before the agent's.
func TestHooksClsact(t *testing.T) {
	for _, clsact := range []bool{false, true} {
		t.Run(fmt.Sprintf("clsact %t", clsact), func(t *testing.T) { testHooks(t, clsact) })
	}
}

func testHooks(t *testing.T, clsact bool) {
	r := newRig(t, ovs.DatapathNetdev)
	r.s.forceClsact = clsact
	r.start()
	r.hostAnswers()
	r.stop() // it would repair

	if clsact != r.clsact(t) {
		t.Fatalf("clsact %t, want %t", r.clsact(t), clsact)
	}

	uplink, bridge := r.index(t, "eth0"), r.index(t, "breth0")

	look := func() (at, ahead []int) {
		t.Helper()

		hooks, err := bpf.Hooks(r.s.PinDir, verdict.Direct, link.ClsactPlace)
		if err != nil {
			t.Fatal(err)
		}

		for _, h := range hooks {
			want := map[bool]int{false: uplink, true: bridge}[h.Bridge]
			if h.Ifindex != 0 && h.Ifindex != want {
				t.Errorf("%s is on device %d, want %d", h.Name, h.Ifindex, want)
			}

			at, ahead = append(at, h.Ifindex), append(ahead, h.Ahead)
		}

		return at, ahead
	}
	if at, ahead := look(); len(at) == 0 || slices.Contains(at, 0) || slices.Max(ahead) != 0 {
		t.Errorf("on devices %v, with %v before them", at, ahead)
	}

	if !clsact {
		return
	}

	testnode.Run(t, "tc", "qdisc", "del", "dev", "eth0", "clsact")

	if at, _ := look(); slices.Index(at, 0) < 0 || slices.Contains(at, uplink) {
		t.Errorf("without the uplink's filters: on devices %v", at)
	}
}

func (r *rig) index(t *testing.T, device string) int {
	t.Helper()

	l, err := link.Get(device)
	if err != nil {
		t.Fatal(err)
	}

	return l.Index
}
