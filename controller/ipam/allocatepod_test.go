package ipam_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
)

// TestPod: what a pod gets on a node on which another pod has 10.0.0.3 and fd00::3, by its
// annotation and its request. After it is written it gets the same again.
func TestPod(t *testing.T) {
	first := newPod("a", "n")
	first.Annotations[annotation.FirstPod] = annotation.FormatFirstPod(annotation.Pod{
		Addresses: prefixes("10.0.0.9/28"), MAC: net.HardwareAddr{0x0a, 0x58, 10, 0, 0, 9},
	})

	chosen := []string{"10.0.0.4/28", "fd00::4/64"}
	for _, tt := range []struct {
		name          string
		subnets       []string // of the node; nil: of both families
		pod           *corev1.Pod
		want          []string
		mac           string
		conflict, err error
	}{
		{name: "nothing", pod: newPod("a", "n"), want: chosen, mac: "0a:58:0a:00:00:04"},
		{
			name: "one family", subnets: []string{"fd00::/64"}, pod: newPod("a", "n"),
			want: chosen[1:], mac: "0a:58:ea:85:c5:81",
		},
		{
			name: "the annotation's", pod: newPod("a", "n", "10.0.0.9/28", "fd00::9/64"),
			want: []string{"10.0.0.9/28", "fd00::9/64"}, mac: "0a:58:0a:00:00:09",
		},
		{
			name: "the annotation's of one family", pod: newPod("a", "n", "10.0.0.9/28"),
			want: []string{"10.0.0.9/28", "fd00::4/64"}, mac: "0a:58:0a:00:00:09",
		},
		{
			name: "the first generation's annotation's", pod: first,
			want: []string{"10.0.0.9/28", "fd00::4/64"}, mac: "0a:58:0a:00:00:09",
		},
		{
			name: "another pod's in the annotation", pod: newPod("a", "n", "10.0.0.3/28"),
			want: chosen, mac: "0a:58:0a:00:00:04", conflict: ipam.ErrTaken,
		},
		{
			name: "the router's in the annotation", pod: newPod("a", "n", "10.0.0.1/28"),
			want: chosen, mac: "0a:58:0a:00:00:04", conflict: ipam.ErrInvalid,
		},
		{
			name: "one outside in the annotation", pod: newPod("a", "n", "10.0.0.9/28", "fd01::9/64"),
			want: chosen, mac: "0a:58:0a:00:00:04",
		},
		{
			name: "two of a subnet in the annotation", pod: newPod("a", "n", "10.0.0.9/28", "10.0.0.8/28"),
			want: chosen, mac: "0a:58:0a:00:00:04",
		},
		{
			name: "requested", pod: asksFor(newPod("a", "n"), `{"ips":["10.0.0.8"],"mac":"02:00:00:00:00:08"}`),
			want: []string{"10.0.0.8/28", "fd00::4/64"}, mac: "02:00:00:00:00:08",
		},
		{
			name: "requested after the annotation was written", pod: asksFor(newPod("a", "n", "10.0.0.9/28"), `{"ips":["10.0.0.8"],"mac":"02:00:00:00:00:08"}`),
			want: []string{"10.0.0.9/28", "fd00::4/64"}, mac: "02:00:00:00:00:08",
		},
		{
			name: "another pod's in the annotation, and a request", pod: asksFor(newPod("a", "n", "10.0.0.3/28"), `{"ips":["10.0.0.8"]}`),
			want: []string{"10.0.0.8/28", "fd00::4/64"}, mac: "0a:58:0a:00:00:08", conflict: ipam.ErrTaken,
		},
		{
			name: "another pod's in annotation and request", pod: asksFor(newPod("a", "n", "10.0.0.3/28"), `{"ips":["10.0.0.3"]}`),
			conflict: ipam.ErrTaken, err: ipam.ErrTaken,
		},
		{
			name: "the router's is requested", pod: asksFor(newPod("a", "n"), `{"ips":["10.0.0.1"]}`),
			err: ipam.ErrInvalid,
		},
		{
			name: "another pod's MAC address is requested", pod: asksFor(newPod("a", "n"), `{"mac":"02:00:00:00:00:03"}`),
			err: ipam.ErrTaken,
		},
		{
			name: "the router's MAC address is requested", pod: asksFor(newPod("a", "n"), `{"mac":"0a:58:0a:00:00:01"}`),
			err: ipam.ErrInvalid,
		},
		{name: "outside", subnets: []string{"192.168.0.0/28"}, pod: newPod("a", "n"), err: ipam.ErrInvalid},
		{name: "the node has no subnets", subnets: []string{}, pod: newPod("a", "n")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.subnets == nil {
				tt.subnets = []string{"10.0.0.0/28", "fd00::/64"}
			}

			a, node := ipam.NewAllocator(settings()), newNode("n", 1, tt.subnets...)
			a.Recover([]*corev1.Node{node}, nil, nil)

			if _, _, err := a.Pod(node, asksFor(newPod("other", "n"), `{"mac":"02:00:00:00:00:03"}`), noPods); err != nil && tt.err == nil {
				t.Fatal(err)
			}

			got, conflict, err := a.Pod(node, tt.pod, noPods)
			if got.MAC.String() != tt.mac || !errors.Is(conflict, tt.conflict) || !errors.Is(err, tt.err) {
				t.Errorf("MAC %s, conflict %v, error %v; want %s, %v, %v", got.MAC, conflict, err, tt.mac, tt.conflict, tt.err)
			}

			if diff := cmp.Diff(tt.want, text(got.Addresses)); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}

			a.RecordWritten(ipam.PodOf(tt.pod))

			again, conflict, err := a.Pod(node, tt.pod, noPods)
			if !slices.Equal(again.Addresses, got.Addresses) || !errors.Is(err, tt.err) || err == nil && conflict != nil {
				t.Errorf("again: %v, conflict %v, error %v; at first %v", again.Addresses, conflict, err, got.Addresses)
			}
		})
	}
}

// TestMalformedRequest: a pod whose request cannot be read gets nothing, and keeps what it had.
func TestMalformedRequest(t *testing.T) {
	a, node := ipam.NewAllocator(settings()), newNode("n", 1, "10.0.0.0/28")

	malformed := asksFor(newPod("a", "n"), `{"ips":["10.0.0."]}`)
	if got, _, err := a.Pod(node, malformed, noPods); err == nil || len(got.Addresses) != 0 {
		t.Errorf("it gets %v, %v", got.Addresses, err)
	}

	if _, _, err := a.Pod(node, newPod("a", "n"), noPods); err != nil {
		t.Fatal(err)
	}

	a.ReleaseNode("n")

	node = newNode("n", 1, "10.0.0.16/28") // so the pod needs another address

	got, _, err := a.Pod(node, malformed, noPods)
	if err == nil || !slices.Equal(text(got.Addresses), []string{"10.0.0.3/28"}) {
		t.Errorf("in another subnet it has %v, %v, want its address and an error", got.Addresses, err)
	}
}

// TestNodeBehind: a pod gets nothing while its node's annotation has other subnets than the node.
func TestNodeBehind(t *testing.T) {
	a := ipam.NewAllocator(settings())
	a.Recover([]*corev1.Node{newNode("n", 1, "10.0.0.0/28")}, nil, nil)

	if got, _, err := a.Pod(newNode("n", 1, "10.0.0.16/28"), newPod("a", "n"), noPods); !errors.Is(err, ipam.ErrNodeBehind) || len(got.Addresses) != 0 {
		t.Errorf("%v, %v, want %v", got.Addresses, err, ipam.ErrNodeBehind)
	}
}

// TestMoveIgnoresTheAnnotation: a pod whose node gets another subnet keeps its address of the other
// family, and the new one is chosen for it. Its annotation may be a tenant's.
func TestMoveIgnoresTheAnnotation(t *testing.T) {
	a, node, pod := ipam.NewAllocator(settings()), newNode("n", 1, "10.0.0.0/28", "fd00::/64"), newPod("a", "n")
	if _, _, err := a.Pod(node, pod, noPods); err != nil {
		t.Fatal(err)
	}

	a.RecordWritten(ipam.PodOf(pod))
	a.ReleaseNode("n")

	node, pod = newNode("n", 1, "10.0.0.16/28", "fd00::/64"), newPod("a", "n", "10.0.0.25/28", "fd00::9/64")
	want := []string{"10.0.0.19/28", "fd00::3/64"}

	for range 2 { // the second time it has both
		got, conflict, err := a.Pod(node, pod, noPods)
		if !slices.Equal(text(got.Addresses), want) || conflict != nil || err != nil {
			t.Errorf("%v, conflict %v, error %v; want %v", got.Addresses, conflict, err, want)
		}
	}
}

// TestUnwrittenAllocationYields: addresses that another leader has written go before an allocation
// that is in no annotation yet, and never before one that was written.
func TestUnwrittenAllocationYields(t *testing.T) {
	node := newNode("n", 1, "10.0.0.0/28")

	for _, tt := range []struct {
		name   string
		before func(*ipam.Allocator)
		said   string
		want   string
	}{
		{"in no annotation", func(*ipam.Allocator) {}, "", "10.0.0.3/28"},
		{"never written", func(*ipam.Allocator) {}, "10.0.0.9/28", "10.0.0.9/28"},
		{"written", func(a *ipam.Allocator) { a.RecordWritten(ipam.PodOf(newPod("a", "n"))) }, "10.0.0.9/28", "10.0.0.3/28"},
		{
			"seen in the annotation", func(a *ipam.Allocator) { _, _, _ = a.Pod(node, newPod("a", "n", "10.0.0.3/28"), noPods) },
			"10.0.0.9/28", "10.0.0.3/28",
		},
		{
			"another pod was written and released", func(a *ipam.Allocator) {
				a.RecordWritten(ipam.PodOf(newPod("other", "n")))
				a.ReleasePods("ns/other")
			}, "10.0.0.9/28", "10.0.0.9/28",
		},
		{"kept when others of its name were released", func(a *ipam.Allocator) { a.ReleasePods("ns/a", "uid-a") }, "10.0.0.9/28", "10.0.0.9/28"},
		{
			"recovered after its release", func(a *ipam.Allocator) {
				a.ReleasePods("ns/a")
				a.ReleaseNode("n")
				_, _, _ = a.Pod(node, newPod("b", "n"), func(string) []*corev1.Pod { return []*corev1.Pod{newPod("a", "n", "10.0.0.3/28")} })
			}, "10.0.0.9/28", "10.0.0.3/28",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := ipam.NewAllocator(settings())
			for _, name := range []string{"a", "other"} {
				if _, _, err := a.Pod(node, newPod(name, "n"), noPods); err != nil {
					t.Fatal(err)
				}
			}

			tt.before(a)

			pod := newPod("a", "n")
			if tt.said != "" {
				pod = newPod("a", "n", tt.said)
			}

			got, conflict, err := a.Pod(node, pod, noPods)
			if !slices.Equal(text(got.Addresses), []string{tt.want}) || conflict != nil || err != nil {
				t.Errorf("%v, conflict %v, error %v; want %s", got.Addresses, conflict, err, tt.want)
			}
		})
	}
}

// TestNodesOwnMACs: no pod may have the MAC address of the node's management port or uplink,
// whether the allocator saw the annotation when it recovered or later.
func TestNodesOwnMACs(t *testing.T) {
	management, uplink := "02:00:00:00:00:01", "02:00:00:00:00:02"
	full := newNode("n", 1, "10.0.0.0/28")
	full.Annotations[annotation.ManagementMACs] = annotation.FormatManagementMAC(net.HardwareAddr{2, 0, 0, 0, 0, 1})

	full.Annotations[annotation.GatewayConfig] = annotation.FormatGateway(annotation.Gateway{
		Mode: annotation.GatewayModeShared, MAC: uplink, Addresses: prefixes("172.30.0.11/24"), NextHops: []netip.Addr{netip.MustParseAddr("172.30.0.1")},
	})
	for name, recovered := range map[string]*corev1.Node{"recovered": full, "later": newNode("n", 1, "10.0.0.0/28")} {
		t.Run(name, func(t *testing.T) {
			s := settings()
			s.Subnets = s.Subnets[:1]
			a := ipam.NewAllocator(s)
			a.Recover([]*corev1.Node{recovered}, nil, nil)

			if recovered != full {
				if _, _, err := a.Node(full, noPods); err != nil {
					t.Fatal(err)
				}
			}

			for mac, want := range map[string]error{management: ipam.ErrInvalid, uplink: ipam.ErrInvalid, "02:00:00:00:00:03": nil} {
				p := asksFor(newPod("a", "n"), fmt.Sprintf(`{"mac":%q}`, mac))
				if got, _, err := a.Pod(full, p, noPods); !errors.Is(err, want) || (len(got.Addresses) == 0) != (want != nil) {
					t.Errorf("a pod that asks for %s gets %v, %v, want error %v", mac, got.Addresses, err, want)
				}

				a.ReleasePods("ns/a")
			}
		})
	}
}
