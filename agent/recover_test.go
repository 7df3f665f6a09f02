package agent

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// poison adds a frontend without backends at the API server's address to the pinned tables, while
// no agent runs. It returns the address.
func (r *rig) poison() string {
	r.t.Helper()

	api, err := url.Parse(r.cfg.RestConfig.Host)
	if err != nil {
		r.t.Fatal(err)
	}

	sock, err := bpf.OpenSock(bpf.CgroupOptions{PinDir: r.cfg.PinDir, CgroupPath: r.cfg.CgroupPath})
	if err != nil {
		r.t.Fatal(err)
	}
	defer sock.Close()

	_, err = sock.SyncServices([]bpf.SockService{{Key: "tenant/poison", Ports: []bpf.SockPort{{
		Proto: unix.IPPROTO_TCP, Frontends: []netip.AddrPort{netip.MustParseAddrPort(api.Host)},
	}}}})
	if err != nil {
		r.t.Fatal(err)
	}

	return api.Host
}

// TestRun_recoversFromPoisonedTables checks that an agent becomes ready although the pinned tables
// of its predecessor refuse connections to the API server, and that it removes the entry.
func TestRun_recoversFromPoisonedTables(t *testing.T) {
	r := newRig(t)
	r.cfg.CgroupPath = testnode.Cgroup(t)
	r.createNode()
	r.annotate(annotation.NodeSubnets, annotation.FormatNodeSubnets([]netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}), "")
	r.start()
	r.installed(management.Name)
	r.awaitMissing("")
	r.stop()

	api := r.poison()

	dial := func() error {
		c, err := net.DialTimeout("tcp", api, 5*time.Second)
		if err == nil {
			c.Close()
		}

		return err
	}
	if err := dial(); !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EPERM) { // the latter before Linux 6.1
		t.Fatalf("other connections to the API server: %v, want them refused", err)
	}

	r.start()
	r.awaitMissing("")
	testnode.Eventually(t, "other connections to the API server", dial)
}
