package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Probe is a request from one lab host to a server.
type Probe struct {
	From     string // lab host, or a pod as namespace/name
	To       string // the server's name
	Protocol string // "tcp" or "udp"
	Address  netip.AddrPort
}

func (p Probe) String() string {
	return fmt.Sprintf("%s to %s by %s/%s", p.From, p.To, p.Protocol, p.Address)
}

// Reach sends all probes, concurrently, and returns which were answered by their server. A reply
// from another server is an error.
func Reach(ctx context.Context, l *lab.Lab, probes []Probe) (map[Probe]bool, error) {
	byHost := map[string][]Probe{}
	for _, p := range probes {
		byHost[p.From] = append(byHost[p.From], p)
	}

	var mu sync.Mutex // guards reached

	reached := map[Probe]bool{}

	var group errgroup.Group
	for from, probes := range byHost {
		group.Go(func() error {
			answers, err := ask(ctx, l, from, probes)

			mu.Lock()
			defer mu.Unlock()

			for i, answer := range answers {
				name, _, _ := strings.Cut(answer, " ")
				if reached[probes[i]] = name == probes[i].To; !reached[probes[i]] && name != "-" {
					return fmt.Errorf("%s: answered by %q", probes[i], answer)
				}
			}

			return err
		})
	}

	return reached, group.Wait()
}

// ask returns a reply for each probe of a host.
func ask(ctx context.Context, l *lab.Lab, from string, probes []Probe) ([]string, error) {
	if strings.Contains(from, "/") {
		from = "pod:" + from
	}

	args := []string{"reach", "-timeout", (700 * time.Millisecond * patience()).String()}
	for _, p := range probes {
		args = append(args, p.Protocol+"/"+p.Address.String())
	}

	out, err := l.Traffic(ctx, from, args...)
	if err != nil {
		return nil, fmt.Errorf("probe from %s: %w", from, err)
	}

	lines := strings.Split(out, "\n")
	if len(lines) != len(probes) {
		return nil, fmt.Errorf("probe from %s: %d answers to %d probes: %s", from, len(lines), len(probes), out)
	}

	for i, line := range lines {
		_, lines[i], _ = strings.Cut(line, " ")
	}

	return lines, nil
}

// patience multiplies time limits: the test VM is emulated.
func patience() time.Duration {
	if os.Getenv("VM_KERNEL") != "" {
		return 10
	}

	return 1
}

// AwaitReach probes until exactly those succeed that want accepts, for at most a minute, or ten
// minutes in the test VM. Its error lists the others.
func AwaitReach(ctx context.Context, l *lab.Lab, probes []Probe, want func(Probe) bool) error {
	for deadline := time.Now().Add(time.Minute * patience()); ; {
		reached, err := Reach(ctx, l, probes)
		if err != nil {
			return err
		}

		var wrong []string

		for _, p := range probes {
			if reached[p] != want(p) {
				wrong = append(wrong, fmt.Sprintf("%s: answered %t, want %t", p, reached[p], want(p)))
			}
		}

		if len(wrong) == 0 {
			return nil
		}

		if time.Now().After(deadline) || ctx.Err() != nil {
			slices.Sort(wrong)
			return fmt.Errorf("%d of %d probes wrong:\n%s", len(wrong), len(probes), strings.Join(wrong[:min(len(wrong), 40)], "\n"))
		}
	}
}
