package agent

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// relay makes the API server, which listens on loopback only, reachable at addresses of the
// uplink's network. So the agent's connections start from the node's address.
type relay struct {
	to string

	mu      sync.Mutex // guards the following fields
	closed  *sync.Cond
	stopped bool       // packets are held back
	conns   []net.Conn // connections from a removed address never end by themselves
}

func (r *rig) relay(to string, at netip.AddrPort) *relay {
	r.t.Helper()

	y := &relay{to: to}
	y.closed = sync.NewCond(&y.mu)

	var l net.Listener

	if err := link.InNetns("/proc/"+r.peer+"/ns/net", func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	}); err != nil {
		r.t.Fatal(err)
	}

	r.t.Cleanup(func() {
		l.Close()
		y.stop(false)
		y.mu.Lock()
		defer y.mu.Unlock()

		for _, c := range y.conns {
			c.Close()
		}
	})

	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			go y.copyStream(c)
		}
	}()

	return y
}

func (y *relay) copyStream(c net.Conn) {
	defer c.Close()

	s, err := net.Dial("tcp", y.to)
	if err != nil {
		return
	}
	defer s.Close()

	y.mu.Lock()
	y.conns = append(y.conns, c)
	y.mu.Unlock()

	go func() { _, _ = io.Copy(c, s) }()

	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)

		y.mu.Lock()
		for y.stopped {
			y.closed.Wait()
		}
		y.mu.Unlock()

		if err != nil {
			return
		}

		if _, err := s.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (y *relay) stop(is bool) {
	y.mu.Lock()
	defer y.mu.Unlock()

	y.stopped = is
	y.closed.Broadcast()
}

// The node's address is replaced by another one, as with DHCP, and the Node's InternalIP with it.
// HTTP and TCP do not detect that the agent's connections hang: pings are off, and the kernel would
// retransmit for 15 minutes.
func TestAddressChanges(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "3600")
	r := newRig(t)
	// Connections that the kernel still retries keep the other namespace, and so the device.
	t.Cleanup(func() {
		if err := Cleanup(context.Background(), r.cfg, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}

		_ = link.Delete("eth0")
	})
	r.address("add", "fd00:172:30::11/64")

	for _, a := range []string{"172.30.0.200/24", "fd00:172:30::200/64"} {
		testnode.Run(t, "nsenter", "-t", r.peer, "-n", "ip", "addr", "add", a, "dev", "eth0", "nodad")
	}

	testnode.Run(t, "nsenter", "-t", r.peer, "-n", "ip", "link", "set", "eth0", "up")
	r.createNode()
	r.annotate(annotation.NodeSubnets, annotation.FormatNodeSubnets([]netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}), "")
	r.cfg.RestConfig.ServerName, r.cfg.Uplink = "127.0.0.1", "eth0"
	direct := r.cfg.RestConfig.Host

	for _, f := range []struct{ name, from, to, peer string }{
		{"IPv4", "172.30.0.11/24", "172.30.0.12/24", "172.30.0.200"},
		{"IPv6", "fd00:172:30::11/64", "fd00:172:30::12/64", "fd00:172:30::200"},
	} {
		t.Run(f.name, func(t *testing.T) {
			r.t = t
			at := netip.AddrPortFrom(netip.MustParseAddr(f.peer), 6443)
			api := r.relay(strings.TrimPrefix(direct, "https://"), at)
			r.cfg.RestConfig.Host = "https://" + at.String()
			r.start()
			r.installed(management.Name)
			r.awaitMissing("")
			r.awaitAddress(f.from)

			r.setInternalIP(f.to)
			r.awaitEvent("GatewayAddressDiffers", f.to)
			api.stop(true) // keeps the old address in the API server, to check readiness meanwhile
			r.address("del", f.from)
			r.address("add", f.to)
			r.awaitMissing("the API server does not have its k8s.ovn.org/host-cidrs, k8s.ovn.org/l3-gateway-config yet")
			api.stop(false)
			r.awaitAddress(f.to)
			r.awaitMissing("")
			r.stop()
		})
	}
}

// setInternalIP sets the Node's InternalIP, as kubelet would.
func (r *rig) setInternalIP(prefix string) {
	r.t.Helper()

	patch := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, netip.MustParsePrefix(prefix).Addr())

	_, err := r.client.CoreV1().Nodes().Patch(r.t.Context(), r.cfg.NodeName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		r.t.Fatal(err)
	}
}

// awaitEvent waits for an Event about the Node whose message contains the address of the prefix, if
// there is one.
func (r *rig) awaitEvent(reason, prefix string) {
	r.t.Helper()

	text := ""
	if prefix != "" {
		text = netip.MustParsePrefix(prefix).Addr().String()
	}

	testnode.Eventually(r.t, "event "+reason, func() error {
		events, err := r.client.CoreV1().Events("").List(r.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err
		}

		for _, e := range events.Items {
			if strings.Contains(e.Message, text) {
				return nil
			}
		}

		return fmt.Errorf("%d events, none about %s", len(events.Items), prefix)
	})
}

func (r *rig) address(do, prefix string) {
	r.t.Helper()

	args := []string{"ip", "addr", do, prefix, "dev", "eth0"}
	if do == "add" {
		args = append(args, "nodad")
	}

	testnode.Run(r.t, args...)
}

// awaitAddress waits until the API server has the address as the address of the gateway.
func (r *rig) awaitAddress(prefix string) {
	r.t.Helper()

	want := netip.MustParsePrefix(prefix)
	testnode.Eventually(r.t, "annotation with "+prefix, func() error {
		node, err := r.client.CoreV1().Nodes().Get(r.t.Context(), r.cfg.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}

		gw, err := annotation.ParseGateway(node.Annotations)
		if err == nil && !slices.Contains(gw.Addresses, want) {
			err = fmt.Errorf("gateway %v", gw.Addresses)
		}

		return err
	})
}
