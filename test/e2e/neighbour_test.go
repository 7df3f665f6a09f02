package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testDAD: the host detects duplicate addresses correctly. The gateway router does not claim a free
// address, nor does it hide a taken one.
func testDAD(t *testing.T, c *Cluster) {
	const free, taken = "fd00:172:30::aaaa", "fd00:172:30::bbbb"

	uplink := c.Uplink()

	c.execute(t, "node1", "sysctl", "-qw", "net.ipv6.conf."+uplink+".accept_dad=1") // off in the lab
	defer c.execute(t, "node1", "sysctl", "-qw", "net.ipv6.conf."+uplink+".accept_dad=0")

	c.execute(t, "ext", "ip", "addr", "add", taken+"/64", "dev", "eth0", "nodad")
	defer c.execute(t, "ext", "ip", "addr", "del", taken+"/64", "dev", "eth0")

	for _, a := range []string{free, taken} {
		c.execute(t, "node1", "ip", "addr", "add", a+"/64", "dev", uplink)
		defer c.execute(t, "node1", "ip", "addr", "del", a+"/64", "dev", uplink)
	}

	within(t, "duplicate address detection", func() error {
		out := c.execute(t, "node1", "ip", "-6", "addr", "show", "dev", uplink)
		for line := range strings.Lines(out) {
			if strings.Contains(line, free) && strings.Contains(line, "tentative") ||
				strings.Contains(line, taken) && !strings.Contains(line, "dadfailed") {
				return fmt.Errorf("not decided, or wrongly: %s", line)
			}

			if strings.Contains(line, free) && strings.Contains(line, "dadfailed") {
				t.Fatalf("the free address is said to be taken: %s", line)
			}
		}

		return nil
	})
}

// testAdvertisement: the host configures an address from a router advertisement. OVN's connections
// do not use it, as it is not the node's address.
func testAdvertisement(t *testing.T, c *Cluster) {
	const prefix, beginning = "2001:db8:7a::/64", "2001:db8:7a:"

	ra := func(accept string) {
		c.execute(t, "node1", "sysctl", "-qw", "net.ipv6.conf."+c.Uplink()+".accept_ra="+accept) // off in the lab
	}
	own := func() string { // the resulting address, or ""
		for _, field := range strings.Fields(c.execute(t, "node1", "ip", "-6", "addr", "show", "dev", c.Uplink())) {
			if strings.HasPrefix(field, beginning) {
				return field
			}
		}

		return ""
	}

	ra("2") // also while forwarding
	defer ra("0")

	live := c.hold(t, "pod to outside", host("a"), port(outside(true), outsidePort), 6*time.Second)
	within(t, "an address of the advertised prefix", func() error {
		c.execute(t, "ext", c.traffic("advertise", prefix)...)

		if own() == "" {
			return fmt.Errorf("none of %s", prefix)
		}

		return nil
	})
	time.Sleep(time.Second) // time for a wrong use of it
	c.answers(t, host("a"), "ext", "udp", port(outside(true), outsidePort), "-n", "5")
	c.execute(t, "node1", "ip", "addr", "del", own(), "dev", c.Uplink())
	c.execute(t, "node1", "ip", "-6", "route", "flush", prefix)
	c.answers(t, host("a"), "ext", "udp", port(outside(true), outsidePort), "-n", "5")
	live.held(t)
}

// testManyRouters: with gateway routers of 70 nodes in one broadcast domain, a request for the
// address of one gets one reply.
func testManyRouters(t *testing.T, c *Cluster) {
	if err := c.AddGhosts(t.Context(), 68); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.DelGhosts(t.Context()); err != nil {
			t.Error(err)
		}
	}()

	within(t, "gateway routers", func() error {
		routers, err := c.GatewayRouters(t.Context())
		if err == nil && routers < 70 {
			err = fmt.Errorf("%d gateway routers", routers)
		}

		return err
	})

	for _, target := range []netip.Addr{c.gateway(1)(false), c.gateway(2)(false)} {
		within(t, "an answer of "+target.String(), func() error { // OVN may have to resolve the client
			_, err := c.Exec(t.Context(), "ext", "ping", "-n", "-q", "-c", "1", "-W", "2", target.String())
			return err
		})

		arp := func(way, operation string, of ...string) *background {
			return c.run(t, "capture", "ext", append([]string{"timeout", "6", "tcpdump", "-n", "-i", "eth0", "-Q", way, "arp[6:2]", "==", operation, "and"}, of...)...)
		}
		// The client may send two requests: one after expiry, and one to confirm.
		requests, replies := arp("out", "1", "dst", "host", target.String()), arp("in", "2", "src", "host", target.String())

		time.Sleep(2 * time.Second) // time for the captures to start
		c.execute(t, "ext", "ip", "neigh", "flush", "to", target.String())
		c.ping(t, "ping", "ext", target, "-c", "1").pinged(t, 1)
		<-requests.done // ended by timeout
		<-replies.done

		asked, got := strings.Count(requests.out.String(), "who-has "+target.String()+" "), strings.Count(replies.out.String(), "Reply "+target.String()+" ")
		if asked == 0 || got != asked {
			t.Errorf("%d answers to %d requests for %s:\n%s%s%s", got, asked, target, requests.out.String(), replies.out.String(), replies.err.String())
		}
	}
}

// testAnnounced: the host has a load balancer's address, as assigned by keepalived to one node. The
// host answers ARP for it, and gets all traffic there that is not for a Service.
func testAnnounced(t *testing.T, c *Cluster) {
	kept := func(v6 bool) netip.Addr {
		return choose(v6, netip.MustParseAddr("172.30.0.210"), netip.MustParseAddr("fd00:172:30::210"))
	}

	err := c.addService(t.Context(), lab.ServiceSpec{
		Name: "kept", Type: corev1.ServiceTypeLoadBalancer, Ports: servicePorts(podPort, 0),
		Pods: []*lab.Pod{c.Pods["a"], c.Pods["c"]}, Ingress: []netip.Addr{kept(false), kept(true)},
	})
	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := c.DelService(t.Context(), "default", "kept"); err != nil {
			t.Error(err)
		}
	}()

	bothFamilies(t, func(t *testing.T, v6 bool) {
		address := netip.PrefixFrom(kept(v6), kept(v6).BitLen()).String()

		c.execute(t, "node1", append([]string{"ip", "addr", "add", address, "dev", c.Uplink()}, nodad(v6)...)...)
		defer c.execute(t, "node1", "ip", "addr", "del", address, "dev", c.Uplink())

		within(t, "the announced address", func() error { return c.ask(t, "ext", port(kept(v6), servicePort)) })

		for _, protocol := range []string{"tcp", "udp"} {
			c.answers(t, "ext", "a,c", protocol, port(kept(v6), servicePort), "-n", "20")
			c.answers(t, "ext", "node1", protocol, port(kept(v6), hostPort), "-n", "5")
		}

		c.ping(t, "ping of the announced address", "ext", kept(v6), "-c", "5", "-i", "0.1").pinged(t, 5)
	})
}

func nodad(v6 bool) []string {
	if v6 {
		return []string{"nodad"}
	}

	return nil
}
