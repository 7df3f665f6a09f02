package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Network namespaces.
const (
	nodeNS    = "node"
	podNS     = "pod"
	outsideNS = "outside"
)

// Addresses. The far pod is behind Geneve at the outside machine.
const (
	nodeIP      = "172.30.0.11"
	nodeIP2     = "172.30.0.111" // a secondary address, as hosts have them
	nodeIP6     = "fd00:172:30::11"
	outsideIP   = "172.30.0.200"
	outsideIP6  = "fd00:172:30::200"
	podIP       = "10.244.0.3"
	podNet      = "10.244.0.0/24"
	routerIP    = "10.244.0.1"
	farPodIP    = "10.244.1.3"
	farPodNet   = "10.244.1.0/24"
	farRouterIP = "10.244.1.1"
	joinIP      = "100.64.0.2" // of the gateway router inside OVN: the source address of NodePort clients at pods
	joinNet     = "100.64.0.0/16"

	podIP6       = "fd00:10:244::3"
	podNet6      = "fd00:10:244::/64"
	routerIP6    = "fd00:10:244::1"
	farPodIP6    = "fd00:10:244:1::3"
	farPodNet6   = "fd00:10:244:1::/64"
	farRouterIP6 = "fd00:10:244:1::1"

	nodeMAC      = "0a:58:ac:1e:00:0b"
	outsideMAC   = "0a:58:ac:1e:00:c8"
	podMAC       = "0a:58:0a:f4:00:03"
	routerMAC    = "0a:58:0a:f4:00:01"
	farPodMAC    = "0a:58:0a:f4:01:03"
	farRouterMAC = "0a:58:0a:f4:01:01"
)

// inNetns runs f in the network namespace on the calling thread, which must be locked. Sockets and
// processes created by f stay in it.
func inNetns(name string, f func() error) error {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("open own netns: %w", err)
	}
	defer home.Close()

	ns, err := os.Open(filepath.Join("/run/netns", name))
	if err != nil {
		return fmt.Errorf("open netns: %w", err)
	}
	defer ns.Close()

	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter netns %q: %w", name, err)
	}

	err = f()

	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		panic("harness: cannot return to the initial netns: " + back.Error())
	}

	return err
}

// command runs argv in the thread's network namespace and returns its standard output. Its error
// contains standard error.
func command(ctx context.Context, stdin string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)

	var out, errs bytes.Buffer

	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(errs.String()))
	}

	return out.String(), nil
}

// script runs a shell script in a namespace. It ends at the first error.
func script(ctx context.Context, netns, lines string) error {
	return inNetns(netns, func() error {
		_, err := command(ctx, lines, "sh", "-e")
		return err
	})
}

// ipBatch runs commands of ip(8) in a namespace, in one process.
func ipBatch(ctx context.Context, netns, lines string) error {
	return inNetns(netns, func() error {
		_, err := command(ctx, lines, "ip", "-batch", "-")
		return err
	})
}

// buildNamespaces creates the parts of all variants: the wire between node and outside, the outside
// machine with its addresses, and the pod behind its veth pod0, which the variant connects.
func buildNamespaces(ctx context.Context) error {
	for _, ns := range []string{nodeNS, podNS, outsideNS} {
		if _, err := command(ctx, "", "ip", "netns", "add", ns); err != nil {
			return err
		}
		// No router solicitations or duplicate address detection during tests, and enough memory for
		// regular ends of connections.
		if err := script(ctx, ns, `
			ip link set lo up
			echo 100000 >/proc/sys/net/ipv4/tcp_max_tw_buckets
			for c in all default; do
				echo 0 >/proc/sys/net/ipv6/conf/$c/accept_ra
				echo 0 >/proc/sys/net/ipv6/conf/$c/accept_dad
				echo 0 >/proc/sys/net/ipv6/conf/$c/router_solicitations
			done`); err != nil {
			return err
		}
	}

	if err := ipBatch(ctx, nodeNS, `
		link add eth0 address `+nodeMAC+` type veth peer name eth0 netns `+outsideNS+` address `+outsideMAC+`
		link add pod0 mtu 1400 type veth peer name eth0 netns `+podNS+` address `+podMAC+` mtu 1400
		link set eth0 up
		link set pod0 up
	`); err != nil {
		return err
	}

	if err := ipBatch(ctx, podNS, `
		link set eth0 up
		addr add `+podIP+`/24 dev eth0
		route add default via `+routerIP+`
		neigh replace `+routerIP+` lladdr `+routerMAC+` dev eth0 nud permanent
	`); err != nil {
		return err
	}

	return ipBatch(ctx, outsideNS, `
		link set eth0 up
		addr add `+outsideIP+`/24 dev eth0
		addr add `+outsideIP6+`/64 dev eth0 nodad
		neigh replace `+nodeIP+` lladdr `+nodeMAC+` dev eth0 nud permanent
		neigh replace `+nodeIP6+` lladdr `+nodeMAC+` dev eth0 nud permanent
		link add far0 address `+farPodMAC+` mtu 1400 type geneve id 1 remote `+nodeIP+` udpcsum
	`+farPod)
}

// farPod connects the far pod by far0, which leads into the overlay.
const farPod = `
	link set far0 up
	addr add ` + farPodIP + `/24 dev far0
	route add ` + podNet + ` via ` + farRouterIP + ` dev far0
	neigh replace ` + farRouterIP + ` lladdr ` + farRouterMAC + ` dev far0 nud permanent
`

// prepareFlows prepares the network for this number of flows. Clients have portsEach ports per
// address, so the outside machine gets further addresses, with static neighbours at the node. With
// more than maxSockets flows, the connection tracker gets more room instead.
func prepareFlows(ctx context.Context, t traits, flows int) error {
	if flows > maxSockets {
		return growConntrack(flows)
	}

	link := "eth0"
	if t.layout == "bridged" {
		link = "breth0"
	}

	var outside, node strings.Builder

	addr := netip.MustParseAddr(outsideIP)
	for n := portsEach; n < flows; n += portsEach {
		addr = addr.Next()
		fmt.Fprintf(&outside, "addr add %s/24 dev eth0\n", addr)
		fmt.Fprintf(&node, "neigh replace %s lladdr %s dev %s nud permanent\n", addr, outsideMAC, link)
	}

	if outside.Len() == 0 {
		return nil
	}
	// Each socket that has received data keeps a page of UDP's memory limit.
	if err := os.WriteFile("/proc/sys/net/ipv4/udp_mem", []byte("1000000 1000000 1000000"), 0o644); err != nil {
		return fmt.Errorf("give UDP memory for %d flows: %w", flows, err)
	}

	if err := ipBatch(ctx, outsideNS, outside.String()); err != nil {
		return err
	}

	return ipBatch(ctx, nodeNS, node.String())
}

// growConntrack makes room in the connection tracker for this number of flows, each of which may
// have entries in two zones.
func growConntrack(flows int) error {
	for file, n := range map[string]int{
		"/proc/sys/net/netfilter/nf_conntrack_max":     4 * flows,
		"/sys/module/nf_conntrack/parameters/hashsize": 2 * flows,
	} {
		if err := os.WriteFile(file, []byte(strconv.Itoa(n)), 0o644); err != nil {
			return fmt.Errorf("track %d flows: %w", flows, err)
		}
	}

	return nil
}

// multicastReports is the time after which a host sends no more multicast reports about a new IPv6
// address. Through Geneve, these are packets on the wire, which a test would count. Seconds of an
// idle guest take no real time.
const multicastReports = 15 * time.Second

// podsIPv6 adds IPv6 addresses to the pods. It runs just before the tests that need them, so that
// earlier ones are not affected.
func podsIPv6(ctx context.Context) error {
	if err := ipBatch(ctx, podNS, `
		addr add `+podIP6+`/64 dev eth0 nodad
		route add default via `+routerIP6+`
		neigh replace `+routerIP6+` lladdr `+routerMAC+` dev eth0 nud permanent
	`); err != nil {
		return err
	}

	if err := ipBatch(ctx, outsideNS, `
		addr add `+farPodIP6+`/64 dev far0 nodad
		route add `+podNet6+` via `+farRouterIP6+` dev far0
		neigh replace `+farRouterIP6+` lladdr `+farRouterMAC+` dev far0 nud permanent
	`); err != nil {
		return err
	}

	select {
	case <-ctx.Done():
	case <-time.After(multicastReports):
	}

	return ctx.Err()
}

// farJoin adds the far pod's route to the gateway router's own address, the source of its NodePort
// clients. It runs just before the tests of NodePorts, so that earlier ones are not affected.
func farJoin(ctx context.Context) error {
	return ipBatch(ctx, outsideNS, `
		route replace `+joinNet+` via `+farRouterIP+` dev far0
	`)
}

// hostAddresses adds the node's addresses to the variant's interface.
func hostAddresses(ctx context.Context, link string) error {
	return ipBatch(ctx, nodeNS, `
		link set `+link+` up
		addr add `+nodeIP+`/24 dev `+link+`
		addr add `+nodeIP2+`/24 dev `+link+`
		addr add `+nodeIP6+`/64 dev `+link+` nodad
		neigh replace `+outsideIP+` lladdr `+outsideMAC+` dev `+link+` nud permanent
		neigh replace `+outsideIP6+` lladdr `+outsideMAC+` dev `+link+` nud permanent
		route add default via `+outsideIP+`
	`)
}

// received returns the number of packets that the node's uplink has received.
func received() (int, error) {
	var n int

	err := inNetns(nodeNS, func() error {
		// The thread's view: /sys shows the namespace that mounted it.
		data, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			return err
		}

		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "eth0:"); ok {
				var bytes int

				_, err := fmt.Sscan(rest, &bytes, &n)

				return err
			}
		}

		return fmt.Errorf("read counters of eth0: no such device")
	})

	return n, err
}
