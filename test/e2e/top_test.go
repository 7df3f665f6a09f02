package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// testTop: traffic from outside to a NodePort is shown as a flow from the wire to OVN, and its
// Service has a rate.
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

	c.topOnTerminal(t, c.Binary("ovnkube"), "gateway", "top", "-interval", "500ms", "-pin-dir", c.Node(1).PinDir, "-run-dir", c.Node(1).RunDir)
}

// topOnTerminal: on a terminal the display is redrawn in place until Ctrl-C.
func (c *Cluster) topOnTerminal(t *testing.T, argv ...string) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a top that does not end
	defer cancel()

	cmd, err := c.Command(ctx, "node1", "script", "--quiet", "--return", "--flush", "--command", "exec "+strings.Join(argv, " "), "/dev/null")
	if err != nil {
		t.Fatal(err)
	}

	keys, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	screen, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	const wipe = "\x1b[H\x1b[2J"

	var seen strings.Builder

	b := make([]byte, 4096)
	for pressed := false; ; {
		n, err := screen.Read(b)
		seen.Write(b[:n])

		if pictures := strings.Count(seen.String(), wipe); pictures >= 3 && !pressed {
			pressed = true

			if _, err := keys.Write([]byte{3}); err != nil { // Ctrl-C
				t.Fatal(err)
			}
		}

		if err != nil {
			break
		}
	}

	if err := cmd.Wait(); err != nil {
		t.Errorf("top ended by Ctrl-C: %v", err)
	}

	for i, picture := range strings.Split(seen.String(), wipe)[1:] {
		if !strings.Contains(picture, "packets/s") {
			t.Errorf("picture %d: %q", i, picture)
		}
	}
}
