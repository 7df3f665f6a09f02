package e2e

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

var errNotYet = errors.New("not yet")

// testMonitor: a monitor on node1 shows the decision about a connection from outside, and leaves no
// programs on the hooks.
func testMonitor(t *testing.T, c *Cluster) {
	argv := []string{c.Binary("ovnkube"), "gateway", "monitor", "-json", "-pin-dir", c.Node(1).PinDir, "-run-dir", c.Node(1).RunDir, "-rate", "1000"}
	if c.flows {
		out, err := c.Exec(t.Context(), "node1", argv...)
		if err == nil || !strings.Contains(err.Error(), "no gateway program is attached") {
			t.Errorf("monitored without a program: %v: %s", err, out)
		}

		return
	}

	bothFamilies(t, func(t *testing.T, v6 bool) {
		want := "service"
		if c.local {
			want = "service_local"
		}

		front := netip.AddrPortFrom(c.gateway(1)(v6), nodePort)

		type result struct {
			out []byte
			err error
		}

		ended := make(chan result, 1)

		go func() {
			out, err := c.Exec(t.Context(), "node1", append(argv, "-count", "2", "-port", "30080", "-protocol", "tcp", "-reason", want, "-address", outside(v6).String())...)
			ended <- result{out, err}
		}()

		var got result

		within(t, "the monitor to see a connection", func() error {
			err := c.ask(t, "ext", front)

			select {
			case got = <-ended:
				return got.err
			default:
				if err == nil {
					err = errNotYet
				}

				return err
			}
		})

		decoder := json.NewDecoder(strings.NewReader(string(got.out)))

		for range 2 {
			var d struct {
				From, Direction, Verdict, Reason, Protocol, Source, Destination, Service string
				DestinationPort                                                          int
			}
			if err := decoder.Decode(&d); err != nil {
				t.Fatalf("%v: %s", err, got.out)
			}

			if d.From != "wire" || d.Direction != "rx" || d.Reason != want || d.Protocol != "tcp" ||
				d.Source != outside(v6).String() || d.Destination != front.Addr().String() || d.DestinationPort != nodePort {
				t.Errorf("saw %+v, want %s", d, want)
			}

			if !c.local && !strings.HasPrefix(d.Service, "default/") { // there none is counted
				t.Errorf("of which Service? %+v", d)
			}
		}
	})
}
