package ovs

import (
	"net/netip"
	"os"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func TestParseTracked(t *testing.T) {
	ap := netip.MustParseAddrPort
	for _, tt := range []struct {
		line string
		want TrackedConnection
	}{
		{
			"tcp,orig=(src=10.244.0.3,dst=172.30.0.200,sport=34567,dport=7000),reply=(src=172.30.0.200,dst=172.30.0.11,sport=7000,dport=49153),zone=7,mark=1,protoinfo=(state=ESTABLISHED)",
			TrackedConnection{
				Proto: 6, Zone: 7, Mark: 1,
				Original: Tuple{ap("10.244.0.3:34567"), ap("172.30.0.200:7000")},
				Reply:    Tuple{ap("172.30.0.200:7000"), ap("172.30.0.11:49153")},
			},
		},
		{
			"tcp,orig=(src=fd00::1,dst=fd00::2,sport=1,dport=2),reply=(src=fd00::2,dst=fd00::3,sport=2,dport=65535),id=3,zone=64000,status=SEEN_REPLY|CONFIRMED,timeout=86389,mark=0x2,protoinfo=(state_orig=ESTABLISHED,state_reply=ESTABLISHED,wscale_orig=7,wscale_reply=7,flags_orig=WINDOW_SCALE,flags_reply=WINDOW_SCALE)",
			TrackedConnection{
				Proto: 6, Zone: 64000, Mark: 2,
				Original: Tuple{ap("[fd00::1]:1"), ap("[fd00::2]:2")},
				Reply:    Tuple{ap("[fd00::2]:2"), ap("[fd00::3]:65535")},
			},
		},
		{
			"tcp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2),reply=(src=10.0.0.2,dst=10.0.0.1,sport=2,dport=1),id=7,status=CONFIRMED,protoinfo=(state_orig=SYN_SENT,state_reply=SYN_SENT)",
			TrackedConnection{
				Proto: 6, Opening: true,
				Original: Tuple{ap("10.0.0.1:1"), ap("10.0.0.2:2")},
				Reply:    Tuple{ap("10.0.0.2:2"), ap("10.0.0.1:1")},
			},
		},
		{
			"icmp,orig=(src=10.0.0.1,dst=10.0.0.2,id=9,type=8,code=0),reply=(src=10.0.0.2,dst=10.0.0.1,id=9,type=0,code=0)",
			TrackedConnection{
				Proto:    1,
				Original: Tuple{ap("10.0.0.1:0"), ap("10.0.0.2:0")},
				Reply:    Tuple{ap("10.0.0.2:0"), ap("10.0.0.1:0")},
			},
		},
	} {
		if got, ok := parseTracked(tt.line); !ok || got != tt.want {
			t.Errorf("parse %s:\n%+v, %t, want\n%+v", tt.line, got, ok, tt.want)
		}
	}

	for _, bad := range []string{"", "tcp", "tcp,orig=(src=x,dst=y)", "tcp,orig=(src=1.1.1.1,dst=2.2.2.2,sport=70000,dport=1),reply=()", "what,orig=(src=1.1.1.1,dst=1.1.1.1),reply=(src=1.1.1.1,dst=1.1.1.1)"} {
		if got, ok := parseTracked(bad); ok {
			t.Errorf("parse %q: %+v, want none", bad, got)
		}
	}
}

// TestConntrackCount checks the count of the userspace datapath, even if no process has the pid in
// ovs-vswitchd's file. That is the case in a container, where the daemon is in another pid
// namespace.
func TestConntrackCount(t *testing.T) {
	s := testnode.StartSwitch(t, true)
	c := dial(t, s)

	const elsewhere = "4194303"
	if err := os.Symlink(s.Dir+"/vswitchd.ctl", s.Dir+"/ovs-vswitchd."+elsewhere+".ctl"); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(s.Dir+"/ovs-vswitchd.pid", []byte(elsewhere+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	none := func(when string) {
		t.Helper()

		if n, err := ConntrackCount(t.Context(), s.Dir); err != nil || n != 0 {
			t.Errorf("%s: %d connections, error %v, want none", when, n, err)
		}
	}

	testnode.Eventually(t, "ovs-vswitchd answers", func() error {
		_, err := ConntrackCount(t.Context(), s.Dir)
		return err
	})
	none("before there is a datapath")

	if err := c.SyncBridge(t.Context(), Bridge{Name: "brx", DatapathType: "netdev"}); err != nil {
		t.Fatal(err)
	}

	testnode.Eventually(t, "the datapath is there", func() error {
		list, err := Conntrack(t.Context(), s.Dir)
		if len(list) != 0 {
			t.Errorf("connections %v, want none", list)
		}

		return err
	})
	none("of an unused datapath")

	if _, err := ConntrackCount(t.Context(), t.TempDir()); err == nil {
		t.Error("no daemon, and no error")
	}
}
