package link

import (
	"errors"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// sender returns a function that sends count frames of size bytes through a device of the calling
// namespace. It also receives incoming frames, as OVS would: frames without a receiver count as
// dropped.
func sender(t *testing.T, device string) func(count, size int) {
	t.Helper()

	dev, err := net.InterfaceByName(device)
	if err != nil {
		t.Fatal(err)
	}

	const everything = 0x0300 // ETH_P_ALL, as on the wire

	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, everything)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Close(fd) })

	return func(count, size int) {
		t.Helper()

		frame := make([]byte, size)
		copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5")

		for range count {
			err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index})
			if err != nil && !errors.Is(err, unix.ENOBUFS) { // what the other end drops
				t.Fatal(err)
			}
		}
	}
}

// A pod's traffic is counted from its perspective, to packet and byte. Frames too long for the
// other end are dropped.
func TestPodsTraffic(t *testing.T) {
	ns := newNetns(t)
	quiet := []string{"sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6"}
	testnode.Run(t, append([]string{"nsenter", "--net=" + ns}, quiet...)...)
	veth(t, "tst9") // not of a pod

	p := PodInterface{HostName: "vethtraffic", Netns: ns, Name: "eth0", MAC: net.HardwareAddr{0x0a, 0x58, 10, 244, 0, 9}, MTU: 1400, Addresses: prefixes("10.244.0.9/24")}
	if err := SyncPodInterface(p); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = Delete(p.HostName) })

	host, err := Get(p.HostName)
	if err != nil {
		t.Fatal(err)
	}

	read := func() []PodTraffic {
		t.Helper()

		all, err := PodsTraffic()
		if err != nil {
			t.Fatal(err)
		}

		return all
	}
	want := []PodTraffic{{Name: p.HostName, Index: host.Index}}
	check := func(when string) {
		t.Helper()

		if diff := cmp.Diff(want, read()); diff != "" {
			t.Errorf("%s (-sent +told):\n%s", when, diff)
		}
	}
	check("before")

	toPod := sender(t, p.HostName)

	var fromPod func(count, size int)

	if err := InNetns(ns, func() error { fromPod = sender(t, "eth0"); return nil }); err != nil {
		t.Fatal(err)
	}

	toPod(5, 100)
	fromPod(7, 1000)

	want[0].Received, want[0].Sent = Traffic{5, 500, 0}, Traffic{7, 7000, 0}

	check("sent both ways")

	testnode.Run(t, "nsenter", "--net="+ns, "ip", "link", "set", "eth0", "mtu", "1280")
	toPod(3, 1400)

	want[0].Received.Dropped = 3

	check("too long for the pod")
	testnode.Run(t, "nsenter", "--net="+ns, "ip", "link", "set", "eth0", "mtu", "1400")
	testnode.Run(t, "ip", "link", "set", p.HostName, "mtu", "1280")
	fromPod(4, 1400)

	want[0].Sent.Dropped = 4

	check("too long for the host")

	if err := Delete(p.HostName); err != nil {
		t.Fatal(err)
	}

	want = []PodTraffic{}

	check("gone")
}
