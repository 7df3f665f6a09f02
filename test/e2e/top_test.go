package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// testTop: what goes to a NodePort from outside is a flow of the class from the wire
// to OVN, and its Service has a rate.
func testTop(t *testing.T, c *Cluster) {
	argv := []string{c.Binary("ovnkube"), "gateway", "top", "-once", "-json", "-rows", "5", "-interval", "2s", "-pin-dir", c.Node(1).PinDir, "-run-dir", c.Node(1).RunDir}
	if c.flows || c.local || c.layout == dedicated { // others have no programs, or other classes
		return
	}
	front := netip.AddrPortFrom(c.gateway(1)(false), nodePort)
	live := c.hold(t, "a busy connection", "ext", front, time.Minute, "-interval", "10ms")
	defer live.stop(t)
	var got struct {
		Classes []struct {
			From, Verdict string
			Flows         []struct {
				Protocol, Source, Destination, Reason string
				Rate                                  struct{ Packets, Bytes float64 }
			}
		}
		Services []struct {
			Service string
			Rate    struct{ Packets, Bytes float64 }
		}
	}
	within(t, "top shows a busy connection", func() error {
		out, err := c.Exec(t.Context(), "node1", argv...)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(out, &got); err != nil {
			return err
		}
		for _, class := range got.Classes {
			for _, f := range class.Flows {
				if class.From == "wire" && class.Verdict == "ovn" && f.Reason == "service" && f.Protocol == "tcp" && f.Destination == front.String() && f.Rate.Packets > 0 && len(got.Services) > 0 {
					return nil
				}
			}
		}
		return fmt.Errorf("%w: %.2000s", errNotYet, out)
	})
	if s := got.Services[0]; s.Rate.Packets <= 0 || s.Rate.Bytes <= 0 || !strings.Contains(s.Service, "/TCP") {
		t.Errorf("Services %+v", got.Services)
	}
}
