package e2e

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// testBandwidth: a pod's annotations limit each direction. As a busy machine lowers the rate, only
// upper bounds are checked against the rate without a limit.
func testBandwidth(t *testing.T, c *Cluster) {
	const ingress, egress = 10e6, 8e6 // bits per second

	pod, err := c.AddPod(t.Context(), lab.PodSpec{
		Name: "limited", Node: "node1",
		Annotations: map[string]string{"kubernetes.io/ingress-bandwidth": "10M", "kubernetes.io/egress-bandwidth": "8M"},
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := c.DelPod(context.WithoutCancel(t.Context()), pod); err != nil {
			t.Error(err)
		}
	})

	if err := c.serve(t.Context(), pod.Host(), "limited", podPort); err != nil {
		t.Fatal(err)
	}

	address := func(v6 bool) (string, string) {
		return port(choose(v6, pod.IP4(), pod.IP6()), podPort).String(), port(c.pod("a")(v6), podPort).String()
	}
	bothFamilies(t, func(t *testing.T, v6 bool) {
		limited, other := address(v6)
		for _, s := range []struct {
			what, from, to string
			limit          float64
		}{{"ingress", host("a"), limited, ingress}, {"egress", pod.Host(), other, egress}} {
			rate := c.rate(t, s.from, s.to, "2s")
			t.Logf("%s: %.2f of the limit", s.what, rate/s.limit)

			if rate > 1.05*s.limit || rate < s.limit/100 {
				t.Errorf("%s: %.1f Mbit/s, the limit is %.0f", s.what, rate/1e6, s.limit/1e6)
			}
		}

		if free := c.rate(t, host("b"), other, "1s"); free < 1.1*ingress {
			t.Errorf("without a limit %.1f Mbit/s: too low to test a limit", free/1e6)
		}
	})
}

// rate returns the receive rate of a stream in bits per second.
func (c *Cluster) rate(t *testing.T, from, to, duration string) float64 {
	t.Helper()
	out := c.execute(t, from, c.traffic("stream", to, "-duration", duration)...)

	var report traffic.StreamReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.TookMS == 0 {
		t.Fatalf("stream from %s to %s: %s, %v", from, to, out, err)
	}

	return 8000 * float64(report.Bytes) / float64(report.TookMS)
}
