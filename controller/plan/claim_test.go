package plan

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestContested checks that contested finds every frontend that another owner may hold and no
// others. It spares objects without a conflict, which are almost all, the search for each
// frontend's holder.
func TestContested(t *testing.T) {
	seed := randomtest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	addrs := []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8::9")}
	ports := []uint16{22, 6081, 80, 3000}

	for range 5000 {
		proto := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[r.IntN(2)]
		none := func() services.ControlPlane { return services.ControlPlane{} }
		c := &arbiter{controlPlane: none, preceding: map[string][]claimant{}}

		for _, port := range ports {
			for _, where := range []string{anyNode, anyExternal, addrs[0].String(), addrs[1].String(), addrs[2].String()} {
				c.preceding[frontendValue(proto, where, port)] = make([]claimant, max(0, r.IntN(16)-14))
			}
		}

		want := false

		fronts := make([]frontend, r.IntN(5))
		for i := range fronts {
			f := frontend{addr: netip.AddrPortFrom(addrs[r.IntN(3)], ports[2+r.IntN(2)]), external: r.IntN(4) > 0}
			if r.IntN(30) == 0 {
				f.addr = netip.AddrPortFrom(f.addr.Addr(), ports[r.IntN(2)])
			}

			where := f.addr.Addr().String()
			if r.IntN(2) == 0 {
				f.node, where = &serviceNode{}, anyExternal
			}

			port := f.addr.Port()
			fronts[i] = f
			want = want || f.external && (services.IsKept(proto, port) || len(c.preceding[frontendValue(proto, where, port)]) > 0 || len(c.preceding[frontendValue(proto, anyNode, port)]) > 0)
		}

		if got := c.contested(proto, fronts); got != want {
			t.Fatalf("contested(%+v) = %t with %v", fronts, got, c.preceding)
		}
	}
}
