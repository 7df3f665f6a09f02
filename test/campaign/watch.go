package campaign

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

const (
	healthEvery = time.Second
	flowsEvery  = 3 * time.Second

	mostFlows = 60_000 // of all bridges of a node

	// Ports of the programs' own health.
	controllerPort, agentPort, healthPort = 9409, 9410, 10256
)

// watch looks at the cluster's health, at the nodes' flows and at the doors while its context lives.
type watch struct {
	mu     sync.Mutex // guards the following fields
	asked  int        // health checks
	failed int
	flows  int      // the most of a node
	broken []string // the first violation of each kind, by its first words
	times  map[string]int
}

// watchAll starts to look. The result is complete when the returned function returns, which the
// caller must call after ctx has ended.
func (g *ground) watchAll(ctx context.Context) (*watch, func(), error) {
	w := &watch{times: map[string]int{}}

	var group sync.WaitGroup

	every := func(pause time.Duration, look func()) {
		group.Go(func() {
			for tick := time.NewTicker(pause); ctx.Err() == nil; {
				look()

				select {
				case <-ctx.Done():
					tick.Stop()
				case <-tick.C:
				}
			}
		})
	}

	type target struct{ name, on, url string }

	local := func(port int, path string) string { return fmt.Sprintf("http://127.0.0.1:%d/%s", port, path) }

	targets := []target{{"/readyz of the controller", "central", local(controllerPort, "readyz")}}
	for _, n := range g.Nodes() {
		targets = append(targets, target{"/readyz of " + n.Name, n.Name, local(agentPort, "readyz")}, target{"/healthz of " + n.Name, n.Name, local(healthPort, "healthz")})

		every(flowsEvery, func() { w.countFlows(ctx, g, n) })

		for _, to := range []netip.Addr{n.IP4, n.IP6} {
			for _, port := range []uint16{doorPort, forgedPort} {
				every(healthEvery, func() { w.tryDoor(ctx, g, netip.AddrPortFrom(to, port)) })
			}
		}
	}

	for _, from := range []string{"ext", "node2"} {
		for _, to := range []netip.Addr{g.Node(1).IP4, g.Node(1).IP6} {
			every(healthEvery, func() { w.tryDatabase(ctx, g, from, netip.AddrPortFrom(to, southPort)) })
		}
	}

	if err := w.sniffTunnel(ctx, g, &group); err != nil {
		return w, group.Wait, err
	}

	for _, to := range []netip.Addr{g.Node(1).IP4, g.Node(1).IP6} {
		every(healthEvery, func() { w.tryTunnel(ctx, g, netip.AddrPortFrom(to, tunnelPort)) })
	}

	for _, t := range targets {
		client, err := g.Client(t.on)
		if err != nil {
			return w, group.Wait, err
		}

		client.Timeout = lostAfter

		every(healthEvery, func() { w.ask(ctx, t.name, client, t.url) })
	}

	return w, group.Wait, nil
}

// violation records a violation: the first of its kind, and how many.
func (w *watch) violation(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.times[kind]++; w.times[kind] == 1 {
		w.broken = append(w.broken, fmt.Sprintf("%s: %s: %s", kind, time.Now().Format("15:04:05.0"), fmt.Sprintf(format, args...)))
	}
}

// ask makes one health check.
func (w *watch) ask(ctx context.Context, name string, client *http.Client, url string) {
	err := lab.Healthy(ctx, client, url)
	if ctx.Err() != nil {
		return
	}

	w.mu.Lock()

	w.asked++
	if err != nil {
		w.failed++
	}
	w.mu.Unlock()

	if err != nil {
		w.violation(name, "%v", err)
	}
}

var flowCount = regexp.MustCompile(`flow_count=(\d+)`)

// countFlows adds up the flows of a node's bridges.
func (w *watch) countFlows(ctx context.Context, g *ground, n *lab.Node) {
	total := 0

	for _, bridge := range []string{"br-int", "breth0"} {
		out, err := g.Exec(ctx, n.Name, "ovs-ofctl", "--timeout=30", "dump-aggregate", bridge)
		m := flowCount.FindSubmatch(out)

		if ctx.Err() != nil {
			return
		}

		if err != nil || m == nil {
			w.violation("flows of "+n.Name, "%s: %v: %s", bridge, err, out)
			return
		}

		count, _ := strconv.Atoi(string(m[1])) // digits
		total += count
	}

	w.mu.Lock()
	w.flows = max(w.flows, total)
	w.mu.Unlock()

	if total > mostFlows {
		w.violation("flows of "+n.Name, "%d, more than %d", total, mostFlows)
	}
}

// tryDoor connects to the NodePort of an attack that is to open ssh, which must not answer.
func (w *watch) tryDoor(ctx context.Context, g *ground, to netip.AddrPort) {
	if by := g.whoIsAt(ctx, "ext", to); strings.HasPrefix(by, sshd) {
		w.violation("a NodePort opens ssh", "%s is answered by %s", to, by)
	}
}

// tryDatabase connects to a node at the port of OVN's Southbound database, where the lab has none.
func (w *watch) tryDatabase(ctx context.Context, g *ground, from string, to netip.AddrPort) {
	if by := g.whoIsAt(ctx, from, to); by != "" {
		w.violation("a pod answers in the place of a database", "%s is answered by %s", to, by)
	}
}

// whoIsAt connects from a lab host and returns the answer of the server, or "".
func (g *ground) whoIsAt(ctx context.Context, from string, to netip.AddrPort) string {
	ns, err := g.Netns(from)
	if err != nil {
		return ""
	}

	ctx, cancel := context.WithTimeout(ctx, healthEvery)
	defer cancel()

	c, err := netns.Dialer(ns)(ctx, "tcp", to.String())
	if err != nil {
		return ""
	}
	defer c.Close()

	return whoAnswers(ctx, c)
}

// tunnelMagic marks the datagrams of tryTunnel.
const tunnelMagic = "ovn-ebpf-to-a-tunnel"

// tryTunnel sends a datagram to the NodePort of the attack that is to lead to a tunnel.
func (w *watch) tryTunnel(ctx context.Context, g *ground, to netip.AddrPort) {
	ns, err := g.Netns("ext")
	if err != nil {
		return
	}

	c, err := netns.Dialer(ns)(ctx, "udp", to.String())
	if err != nil {
		return
	}
	defer c.Close()

	_, _ = c.Write([]byte(tunnelMagic)) // an error is the answer to the datagram before
}

// sniffTunnel reports datagrams of tryTunnel that arrive at node2, which has the only endpoint of
// that attack.
func (w *watch) sniffTunnel(ctx context.Context, g *ground, group *sync.WaitGroup) error {
	fd, err := g.socket("node2", "eth0")
	if err != nil {
		return err
	}

	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}); err != nil {
		return errors.Join(err, unix.Close(fd))
	}

	group.Go(func() {
		defer unix.Close(fd)

		for buf := make([]byte, 65536); ctx.Err() == nil; {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				continue
			}

			// The destination port is in the UDP header, directly before the datagram's data.
			at := bytes.Index(buf[:n], []byte(tunnelMagic)) - 6
			if at >= 0 && binary.BigEndian.Uint16(buf[at:]) == genevePort {
				w.violation("a NodePort leads to a tunnel", "%x", buf[:min(n, 120)])
			}
		}
	})

	return nil
}

// whoAnswers returns the answer of a server, or "".
func whoAnswers(ctx context.Context, c net.Conn) string {
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline) // without one, the server answers
	}

	buf := make([]byte, 100)

	if _, err := fmt.Fprintln(c, "who"); err != nil {
		return ""
	}

	n, _ := c.Read(buf) // "": nobody answers

	return strings.TrimSpace(string(buf[:n]))
}

// report adds the results.
func (w *watch) report(r *Report) {
	w.mu.Lock()
	defer w.mu.Unlock()

	r.Figures = append(r.Figures,
		Figure{"health checks of controller, agents and nodes", fmt.Sprintf("%d, failed %d", w.asked, w.failed)},
		Figure{"flows of a node, most", fmt.Sprint(w.flows)})
	for _, b := range w.broken {
		kind, _, _ := strings.Cut(b, ": ")
		r.Broken = append(r.Broken, fmt.Sprintf("%s (%d times)", b, w.times[kind]))
	}
}
