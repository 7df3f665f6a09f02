package gateway

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Some ports are protected on host addresses. When any host of the cluster gets an address, on any
// device, Services lose these ports of the address. They get them back when the address is removed.
// The same holds for an address of the control plane, and for the port of the server there.
func TestKeptPortsFollowAddresses(t *testing.T) {
	testKeptPortsFollow(t, newRig(t, ovs.DatapathNetdev), func(r *rig, _ string) (int, error) {
		tables, err := bpf.Tables(r.s.PinDir)
		return tables["services"].Entries, err
	})
}

func TestKeptPortsFollowAddressesFlows(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.s.Backend = OpenFlow
	r.bridged()
	r.addPatch()
	testKeptPortsFollow(t, r, func(r *rig, address string) (int, error) {
		out, err := exec.Command("ovs-ofctl", "-O", "OpenFlow14", "--no-names", "dump-flows", "unix:"+r.sw.Dir+"/breth0.mgmt", "cookie="+ovs.Cookie+"/"+ovs.CookieMask).CombinedOutput()
		n := 0

		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "_dst="+address) && strings.Contains(line, "tp_dst=") {
				n++
			}
		}

		return n, err
	})
}

func testKeptPortsFollow(t *testing.T, r *rig, served func(r *rig, address string) (int, error)) {
	t.Helper()

	r.s.PodCIDRs = append(r.s.PodCIDRs, netip.MustParsePrefix("fd00:10:244::/48"))
	for _, vip := range []netip.Prefix{netip.MustParsePrefix("172.31.9.9/32"), netip.MustParsePrefix("2001:db8::9/128")} {
		family := "10.96.0.10"
		if vip.Addr().Is6() {
			family = "fd00:10:96::10"
		}

		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "web"}}
		svc.Spec.Type, svc.Spec.ClusterIPs = corev1.ServiceTypeLoadBalancer, []string{family}

		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: vip.Addr().String()}}
		for _, port := range []int32{22, 80, 2379, 6443, 6642, 10250} {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(port), Port: port})
		}

		r.objects = map[service.Key]service.Objects{{Namespace: "tenant", Name: "web"}: {Service: svc}}
		r.start()

		await := func(when string, want int) {
			t.Helper()
			testnode.Eventually(t, when, func() error {
				if n, err := served(r, vip.Addr().String()); err != nil || n != want {
					return fmt.Errorf("%s has %d ports that are served, want %d: %w", vip, n, want, err)
				}

				return nil
			})
		}
		await("unowned address", 6)
		testnode.Run(t, "ip", "addr", "add", vip.String(), "dev", "lo")
		await("the host's", 1)
		testnode.Run(t, "ip", "addr", "del", vip.String(), "dev", "lo")
		await("unowned again", 6)
		r.hosts.Store(&[]netip.Addr{vip.Addr()})
		r.gw.Inputs().PeersChanged()
		await("another host's", 1)
		r.hosts.Store(nil)
		r.gw.Inputs().PeersChanged()
		await("unowned once more", 6)

		for when, port := range map[string]uint16{"a server's, with port 80": 80, "a server's, with port 81": 81} {
			control := model.NewControlPlane(model.APIServer, []netip.AddrPort{netip.AddrPortFrom(vip.Addr(), port)}, nil)
			r.control.Store(&control)
			r.gw.Trigger()
			await(when, int(port-80))
		}

		r.control.Store(nil)
		r.gw.Trigger()
		await("no server's", 6)
		r.stop()
	}
}
