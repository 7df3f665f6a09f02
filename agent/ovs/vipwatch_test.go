package ovs

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWatchVIPs_followsBridge adds flows like those of OVN's load balancers and others.
func TestWatchVIPs_followsBridge(t *testing.T) {
	i := startIntegration(t)
	ofctl := func(command, arg string) {
		t.Helper()
		i.ofctl(command, arg)
	}
	ofctl("add-group", "group_id=4,type=select,bucket=actions=drop")

	added := make(chan VIP, 10)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	is := func(proto uint8, at string) {
		t.Helper()

		want := VIP{proto, netip.MustParseAddrPort(at)}

		select {
		case got := <-added:
			if got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no VIP, want %v", want)
		}
	}

	const first = "table=21,ct_state=+new+trk,udp,metadata=5,nw_dst=10.96.0.9,tp_dst=53"
	ofctl("add-flow", first+",actions=group:4")

	go func() { ended <- WatchVIPs(ctx, i.Dir, func(v VIP) { added <- v }, func(error) {}) }()

	is(unix.IPPROTO_UDP, "10.96.0.9:53") // it was there

	for _, other := range []string{ // the next VIP comes next
		first + ",actions=load:1->NXM_NX_REG1[],group:4",
		"table=17,ct_state=+new-rel+trk,udp,metadata=8,nw_dst=10.96.0.9,tp_dst=53,actions=group:4",
		"table=14,udp,metadata=5,nw_dst=10.96.0.10,tp_dst=53,actions=group:4",
		"table=21,ct_state=+new+trk,udp,metadata=5,nw_dst=10.96.0.11,tp_dst=53,actions=drop",
		"table=21,ct_state=+new+trk,udp,metadata=5,nw_dst=10.96.0.0/24,tp_dst=53,actions=group:4",
		"table=21,ct_state=+new+trk,udp,metadata=5,nw_dst=10.96.0.12,actions=group:4",
		"table=21,ct_state=+est+trk,udp,metadata=5,nw_dst=10.96.0.13,tp_dst=53,actions=group:4",
	} {
		ofctl("add-flow", other)
	}

	ofctl("add-flow", "table=21,ct_state=+new+trk,tcp6,metadata=5,ipv6_dst=fd00::9,tp_dst=80,actions=group:4")
	is(unix.IPPROTO_TCP, "[fd00::9]:80")
	ofctl("mod-flows", "table=21,ct_state=+new+trk,udp,metadata=5,nw_dst=10.96.0.11,tp_dst=53,actions=group:4")
	is(unix.IPPROTO_UDP, "10.96.0.11:53") // its first endpoint

	// It is new again when all of its flows were gone.
	ofctl("del-flows", "table=21,udp,nw_dst=10.96.0.9")
	ofctl("add-flow", first+",actions=group:4")
	ofctl("del-flows", "udp,nw_dst=10.96.0.9")
	ofctl("add-flow", "table=21,ct_state=+new+trk,udp,metadata=5,nw_dst=10.96.0.14,tp_dst=53,actions=group:4")
	is(unix.IPPROTO_UDP, "10.96.0.14:53")
	ofctl("add-flow", first+",actions=group:4")
	is(unix.IPPROTO_UDP, "10.96.0.9:53")

	i.KillVswitchd()
	i.StartVswitchd(t)
	i.awaitBridge()
	ofctl("add-group", "group_id=4,type=select,bucket=actions=drop")
	ofctl("add-flow", first+",actions=group:4")
	is(unix.IPPROTO_UDP, "10.96.0.9:53")
	stop()

	if err := <-ended; err != nil {
		t.Error(err)
	}
}
