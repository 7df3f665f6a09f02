package bpf

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// BenchmarkSock measures the programs' cost per operation with kernel statistics. In the VM with
// -i, prog-ns/op are instructions.
func BenchmarkSock(b *testing.B) {
	h := newSockHost(b)
	s := h.open(b, webService(backAddrs[0]))

	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()

	back, vip := "192.0.2.11:8080", vip4
	for _, bm := range []struct {
		name, to string
		op       func(*client, netip.AddrPort) error
		typ      int
		each     bool // a socket of its own
	}{
		{"connect, backend", back, connectOp, unix.SOCK_STREAM, true},
		{"connect, service", vip, connectOp, unix.SOCK_STREAM, true},
		{"connect, node port", "192.0.2.1:30080", connectOp, unix.SOCK_STREAM, true},
		{"send and receive, backend", back, askOp, unix.SOCK_DGRAM, false},
		{"send and receive, service", vip, askOp, unix.SOCK_DGRAM, false},
		{"send and receive, new socket", vip, askOp, unix.SOCK_DGRAM, true},
	} {
		b.Run(bm.name, func(b *testing.B) {
			to := netip.MustParseAddrPort(bm.to)
			c := h.client(b, bm.typ, to.Addr(), false)

			before := runTime(b, s)
			for range b.N {
				if bm.each {
					c.close()
					c.open(b, h, bm.typ)
				}

				if err := bm.op(c, to); err != nil {
					b.Fatal(err)
				}
			}

			b.ReportMetric(float64(runTime(b, s)-before)/float64(b.N), "prog-ns/op")
		})
	}
}

func connectOp(c *client, to netip.AddrPort) error { return c.connect(to) }

func askOp(c *client, to netip.AddrPort) error {
	_, _, err := c.ask(to)
	return err
}

// open recreates the IPv4 socket.
func (c *client) open(b *testing.B, h *sockHost, typ int) {
	h.must(b, func() (err error) {
		c.fd, err = unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC, 0)
		return err
	})
}

// runTime sums the programs' run time in nanoseconds.
func runTime(b *testing.B, s *Sock) uint64 {
	b.Helper()

	var sum uint64

	for _, h := range s.hooks {
		st, err := h.prog.Stats()
		if err != nil {
			b.Fatal(err)
		}

		sum += uint64(st.Runtime)
	}

	return sum
}
