package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

const answerPort = 8080

// giveBoth assigns an address of each family to the pod, as the controller does.
func (r *cniRig) giveBoth(pod *corev1.Pod, host byte) []netip.Addr {
	r.t.Helper()

	v4 := netip.AddrFrom4([4]byte{10, 244, 1, host})
	v6 := netip.MustParseAddr(fmt.Sprintf("fd00:10:244:1::%x", host))
	r.annotate(annotation.PodNetworks, annotation.FormatPod(annotation.Pod{
		Addresses: []netip.Prefix{netip.PrefixFrom(v4, 24), netip.PrefixFrom(v6, 64)},
		MAC:       net.HardwareAddr{0x0a, 0x58, 10, 244, 1, host},
		Gateways:  []netip.Addr{netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("fd00:10:244:1::1")},
	}), pod.Name)

	return []netip.Addr{v4, v6}
}

// forward lets the integration bridge switch packets between its ports, in place of
// ovn-controller's flows.
func (r *cniRig) forward() {
	r.t.Helper()
	testnode.Eventually(r.t, "flow", func() error {
		return exec.Command("ovs-ofctl", "add-flow", "unix:"+r.sw.Dir+"/br-int.mgmt", "actions=NORMAL").Run()
	})
}

// answer makes the pod send its name to each client, in whichever sandbox its namespace gets an
// interface, until the test ends.
func (s sandbox) answer(r *cniRig) {
	r.t.Helper()

	var l net.Listener

	if err := link.InNetns(s.NetNS, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", answerPort))
		return err
	}); err != nil {
		r.t.Fatal(err)
	}

	r.t.Cleanup(func() { l.Close() })

	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			_, _ = io.WriteString(c, s.pod.Name)
			c.Close()
		}
	}()
}

// ask connects to the address from inside the sandbox and returns the name that the peer sends.
func (s sandbox) ask(to netip.Addr) (name string, err error) {
	err = link.InNetns(s.NetNS, func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(to, answerPort).String(), 2*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()

		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}

		b, err := io.ReadAll(c)
		name = string(b)

		return err
	})

	return name, err
}

// mustAnswer waits until the probe reaches every pod at each of its addresses, and gets the pod's
// own name.
func (r *cniRig) mustAnswer(probe sandbox, addresses map[string][]netip.Addr) {
	r.t.Helper()

	type question struct {
		pod string
		at  netip.Addr
	}

	var open []question

	for pod, all := range addresses {
		for _, at := range all {
			open = append(open, question{pod, at})
		}
	}

	testnode.Eventually(r.t, "pods answer", func() error {
		failed := make([]error, len(open))

		var group errgroup.Group
		group.SetLimit(20)

		for i, q := range open {
			group.Go(func() error {
				name, err := probe.ask(q.at)
				if err == nil && name != q.pod {
					err = fmt.Errorf("%q answers", name)
				}

				if err != nil {
					failed[i] = fmt.Errorf("pod %s at %s: %w", q.pod, q.at, err)
				}

				return nil
			})
		}

		_ = group.Wait()

		var left []question

		for i, q := range open {
			if failed[i] != nil {
				left = append(left, q)
			}
		}

		open = left

		return errors.Join(failed...)
	})
}
