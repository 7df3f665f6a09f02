package podnet_test

import (
	"context"
	"io"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestBandwidth measures the rates at which a limited pod sends and receives. A slow machine can
// only lower them.
func TestBandwidth(t *testing.T) {
	r := newRig(t)

	const ingress, egress = 4e6, 8e6 // bit/s

	a, b := newPod(t, "c-a", "a", 3), newPod(t, "c-b", "b", 4)
	r.add(t, a)
	r.add(t, b)
	testnode.Eventually(t, "flow", func() error {
		return exec.Command("ovs-ofctl", "add-flow", "unix:"+r.sw.Dir+"/br-int.mgmt", "actions=NORMAL").Run()
	})

	const amount = 1 << 20 // bytes
	if free := transfer(t, b, a, amount); free < 2*ingress {
		t.Fatalf("without a limit %.1f Mbit/s: too low to test a limit of 8 Mbit/s", free/1e6)
	}

	a.IngressRate, a.EgressRate = ingress, egress
	r.add(t, a)

	if err := r.Check(t.Context(), a); err != nil {
		t.Error(err)
	}

	in, out := transfer(t, b, a, amount), transfer(t, a, b, amount)
	t.Logf("of the limit: ingress %.2f, egress %.2f", in/ingress, out/egress)

	if in > 1.05*ingress || out > 1.05*egress {
		t.Errorf("ingress %.1f Mbit/s, egress %.1f Mbit/s: want at most %.0f and %.0f", in/1e6, out/1e6, ingress/1e6, egress/1e6)
	}

	free := a

	free.IngressRate, free.EgressRate = 0, 0
	if err := r.Check(t.Context(), free); err == nil {
		t.Error("Check accepts a limit that was not requested")
	}

	if err := r.Del(t.Context(), "c-a", "eth0"); err != nil {
		t.Fatal(err)
	}
}

// burst is the number of bytes that a full token bucket passes at once. It is twice the bucket's
// size for limits this low.
const burst = 128 << 10

// transfer sends amount bytes from one pod to the other. It returns the payload rate in bits per
// second, without the first burst. A busy processor can only lower the rate.
func transfer(t *testing.T, from, to podnet.Pod, amount int64) float64 {
	t.Helper()

	var l net.Listener

	if err := link.InNetns(to.Netns, func() (err error) {
		l, err = net.Listen("tcp4", to.Addresses[0].Addr().String()+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}

	defer l.Close()

	start := time.Now()
	sent := make(chan error, 1)

	go func() {
		c, err := dial(t.Context(), from, l.Addr().String())
		if err != nil {
			l.Close()
		} else {
			defer c.Close()

			_, err = c.Write(make([]byte, amount))
		}

		sent <- err
	}()

	c, err := l.Accept()
	if err != nil {
		t.Fatal(<-sent)
	}
	defer c.Close()

	if _, err := io.CopyN(io.Discard, c, amount); err != nil {
		t.Fatal(err)
	}

	took := time.Since(start)

	if err := <-sent; err != nil {
		t.Fatal(err)
	}

	return 8 * float64(amount-burst) / took.Seconds()
}

// dial connects from inside a pod. It retries, as the first packets may be lost while the switch is
// not ready.
func dial(ctx context.Context, from podnet.Pod, address string) (c net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()

	err = link.InNetns(from.Netns, func() (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, "tcp4", address)
		return err
	})

	return c, err
}
