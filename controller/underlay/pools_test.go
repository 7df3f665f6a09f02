package underlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud/cloudtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
)

// faulty is the stand-in of Neutron with faults.
type faulty struct {
	*cloudtest.Neutron

	mu    sync.Mutex                  // guards the fields below
	fault func(step cloud.Step) error // of the next call; nil: none. Observe has no step
	looks int                         // calls of Observe
	steps []string                    // calls of Do
}

// Observe implements Neutron.
func (f *faulty) Observe(ctx context.Context, pool string, vif *openstack.PortFilter) (cloud.Observation, error) {
	if err := f.begin(nil); err != nil {
		return cloud.Observation{}, err
	}

	return f.Neutron.Observe(ctx, pool, vif)
}

// Do implements Neutron.
func (f *faulty) Do(ctx context.Context, step cloud.Step) (cloud.Result, error) {
	if err := f.begin(step); err != nil {
		return cloud.Result{}, err
	}

	return f.Neutron.Do(ctx, step)
}

// begin counts a call, and returns its fault. A call of Observe has no step.
func (f *faulty) begin(step cloud.Step) error {
	f.mu.Lock()
	if step == nil {
		f.looks++
	} else {
		f.steps = append(f.steps, step.String())
	}

	fault := f.fault
	f.mu.Unlock()

	if fault == nil {
		return nil
	}

	return fault(step)
}

// calls returns the numbers of calls so far.
func (f *faulty) calls() (looks, steps int) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.looks, len(f.steps)
}

// bench is running Pools of one node, node1, in a bubble of synctest.
type bench struct {
	t       *testing.T
	neutron *faulty
	pools   *Pools

	mu       sync.Mutex // guards the fields below
	told     map[string]*cloud.Record
	reports  []string // of all nodes; "" for no problems
	unwanted error    // of Publish
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, told: map[string]*cloud.Record{}}

	var vifs []cloud.Port

	for n := byte(1); n <= 2; n++ {
		v := vif(n)
		vifs = append(vifs, cloud.Port{
			ID: v.ID, Project: project, Network: "vms", MAC: v.MAC.String(), Device: fmt.Sprint("server", n),
			FixedIPs: []cloud.FixedIP{{Subnet: "vms", Address: v.Address}},
		})
	}

	b.neutron = &faulty{Neutron: cloudtest.New(vifs...)}

	var err error

	b.pools, err = NewPools(Options{
		Client: b.neutron, Workers: 2, Resync: resync, Retry: retry, Backoff: backoff,
		Publish: b.publish, Report: b.report, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())

	ended := make(chan error)
	go func() { ended <- b.pools.Run(ctx) }()

	t.Cleanup(func() {
		cancel()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	return b
}

func (b *bench) publish(_ context.Context, node string, r *cloud.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.unwanted == nil {
		b.told[node] = r
	}

	return b.unwanted
}

func (b *bench) report(_ string, problems []cloud.Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()

	var texts []string
	for _, p := range problems {
		texts = append(texts, string(p.Reason)+": "+p.Text)
	}

	b.reports = append(b.reports, strings.Join(texts, "\n"))
}

// set makes the pool of the n-th node a wanted one.
func (b *bench) set(n byte) {
	config := cloud.Config{Cluster: "k8s", Project: project, Router: router, SubnetPool: pool4, Groups: []string{group}}
	b.pools.Set(cloud.Pool{Config: config, Node: nodeName(n), VIF: vif(n), Length: 28}, nil)
}

// release releases the pool of node1: after the time, or at once if its VM is gone.
func (b *bench) release(after time.Duration) {
	b.pools.Release(cloud.Pool{Config: cloud.Config{Cluster: "k8s", Router: router}, Node: nodeName(1)}, nil, after)
}

// ports returns the number of ports that are published for the n-th node; -1 without a pool.
func (b *bench) ports(n byte) int {
	b.mu.Lock()
	defer b.mu.Unlock()

	r := b.told[nodeName(n)]
	if r == nil {
		return -1
	}

	return len(r.Lines)
}

// pass lets so much time pass, and waits until nothing is left to do.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fail makes requests of a kind fail with an error, or all of them if match is nil.
func (b *bench) fail(e *openstack.Error, match func(cloud.Step) bool) {
	b.neutron.mu.Lock()
	defer b.neutron.mu.Unlock()

	if e == nil {
		b.neutron.fault = nil
		return
	}

	b.neutron.fault = func(step cloud.Step) error {
		if match == nil || step != nil && match(step) {
			return e
		}

		return nil
	}
}

func isStep[T cloud.Step](step cloud.Step) bool {
	_, is := step.(T)
	return is
}

// checkReports compares the reports so far with prefixes of those that are wanted.
func (b *bench) checkReports(want ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()

	same := slices.EqualFunc(b.reports, want, func(got, want string) bool {
		return strings.HasPrefix(got, want) && (want != "" || got == "")
	})
	if !same {
		b.t.Errorf("reports %q, want %q", b.reports, want)
	}
}

// Changes of the wanted pool, such as pods that come and go, do not shorten the backoff.
func TestPools_setKeepsBackoff(t *testing.T) {
	looksIn := func(change bool) (looks int) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.fail(&openstack.Error{Kind: openstack.Away}, nil)
			b.set(1)

			for range 600 {
				pass(100 * time.Millisecond)

				if change {
					b.set(1)
				}
			}

			looks, _ = b.neutron.calls()
		})

		return looks
	}
	if quiet, busy := looksIn(false), looksIn(true); busy != quiet || quiet < 5 {
		t.Errorf("%d looks at a cloud that is away in a minute of changes, %d without changes", busy, quiet)
	}
}

// If OpenStack asks for a pause, no node sends requests meanwhile.
func TestPools_retryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fail(&openstack.Error{Kind: openstack.Busy, Status: 429, RetryAfter: 2 * time.Minute}, nil)
		b.set(1)
		pass(0)
		b.fail(nil, nil)
		b.set(2)
		pass(2*time.Minute - time.Second)

		if looks, steps := b.neutron.calls(); looks != 1 || steps != 0 {
			t.Errorf("%d looks and %d steps before the pause was over, want 1 and 0", looks, steps)
		}

		pass(2 * time.Second)

		if one, two := b.ports(1), b.ports(2); one != 13 || two != 13 {
			t.Errorf("%d and %d ports after the pause, want 13", one, two)
		}
	})
}

// A pause that is longer than ten minutes is shortened: a wrong header must not stop the
// controller.
func TestPools_longestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fail(&openstack.Error{Kind: openstack.Busy, Status: 503, RetryAfter: 100 * time.Hour}, nil)
		b.set(1)
		pass(0)
		b.fail(nil, nil)
		pass(maxPause + time.Second)

		if got := b.ports(1); got != 13 {
			t.Errorf("%d ports, want 13", got)
		}
	})
}

// An error of Publish concerns the API server. It causes no other look at Neutron, and is not
// reported as a problem of the cloud.
func TestPools_publishFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.unwanted = errors.New("API server is away")
		b.set(1)
		pass(5 * time.Minute)

		if looks, _ := b.neutron.calls(); looks != 1 {
			t.Errorf("%d looks at Neutron, want 1", looks)
		}

		if s := b.pools.Status()[0]; !errors.Is(s.Err, b.unwanted) {
			t.Errorf("status %+v, want the error of Publish", s)
		}

		b.checkReports()

		b.mu.Lock()
		b.unwanted = nil
		b.mu.Unlock()
		pass(retry)

		if got := b.ports(1); got != 13 {
			t.Errorf("%d ports, want 13", got)
		}
	})
}

// An outage of Neutron after one of the API server is as old as its own first error.
func TestPools_awayAfterAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.unwanted = errors.New("API server is away")
		b.fail(&openstack.Error{Kind: openstack.Away}, nil)
		b.set(1)
		pass(5 * time.Second)
		b.fail(nil, nil) // that outage is over
		pass(time.Hour)

		before, _ := b.neutron.calls()
		b.fail(&openstack.Error{Kind: openstack.Away}, nil)
		b.release(0)
		pass(retry)

		if looks, _ := b.neutron.calls(); looks != before+1 {
			t.Errorf("%d looks, want one", looks-before)
		}

		b.checkReports()
		pass(retry)
		b.checkReports("CloudAway: ")
	})
}

// Places that others occupy are a problem, but the pool is looked at no more often than a complete
// one.
func TestPools_takenPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.set(1)
		pass(0)
		b.neutron.With(func(s *cloud.Observation) {
			s.Trunks[0].Subports = append(s.Trunks[0].Subports, cloud.Subport{Port: "other", Tag: 30})
			s.Ports[5].Name = "another's"
		})
		pass(resync)
		b.checkReports("AddressTaken: ")
		before, _ := b.neutron.calls()

		pass(resync - time.Second)

		if looks, _ := b.neutron.calls(); looks != before {
			t.Errorf("%d looks before the next resync", looks-before)
		}
	})
}

// Cluster API deletes the VM, then trunk and subports, the VIF, and the Node last. Between any two
// of these steps a resync makes and repairs nothing. The ports are deleted as soon as the Node is.
func TestPools_vmDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.set(1)
		pass(0)

		_, made := b.neutron.calls()

		b.neutron.With(func(s *cloud.Observation) { s.VIFs[0].Device = "" })
		pass(resync)
		b.checkReports("VIFWithoutVM: ")
		b.neutron.With(func(s *cloud.Observation) {
			s.Trunks = nil
			for i := range s.Ports {
				if s.Ports[i].Owner == "trunk:subport" {
					s.Ports[i].Owner = ""
				}
			}
		})
		pass(resync)
		b.neutron.With(func(s *cloud.Observation) { s.VIFs = s.VIFs[1:] })
		pass(resync)

		if _, steps := b.neutron.calls(); steps != made {
			t.Errorf("steps for a VM that is being deleted: %q", b.neutron.steps[made:])
		}

		b.release(time.Hour)
		pass(0)
		b.checkEmpty()
	})
}

// Ports that another program deletes, retags or readdresses, and ports whose trunk it deletes, are
// held until they are repaired. The repair is one problem, and the ports are as before.
func TestPools_repairs(t *testing.T) {
	for name, change := range map[string]func(s *cloud.Observation){
		"a port is deleted": func(s *cloud.Observation) {
			s.Trunks[0].Subports = slices.Delete(s.Trunks[0].Subports, 3, 4)
			s.Ports = slices.Delete(s.Ports, 4, 5) // the first one is the router's
		},
		"a port is retagged": func(s *cloud.Observation) { s.Trunks[0].Subports[3].Tag = 999 },
		"a port has another address": func(s *cloud.Observation) {
			const unused = "10.244.0.15"

			s.Ports[4].FixedIPs = []cloud.FixedIP{{Subnet: s.Subnets[0].ID, Address: netip.MustParseAddr(unused)}}
		},
		"the trunk is deleted": func(s *cloud.Observation) {
			s.Trunks = nil
			for i := range s.Ports[1:] {
				s.Ports[1+i].Owner = ""
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.set(1)
				pass(0)

				before := *b.told[nodeName(1)]
				b.neutron.With(change)
				pass(resync)
				b.checkReports("PortsRepaired: repair pool of node node1: ports are not as they were made", "")

				after := *b.told[nodeName(1)]
				if len(after.Lines) != len(before.Lines) {
					t.Fatalf("%d lines, were %d", len(after.Lines), len(before.Lines))
				}

				for i, l := range after.Lines {
					was := before.Lines[i]
					if l.Held || l.Tag != was.Tag || l.MAC != was.MAC || !slices.Equal(l.Addresses, was.Addresses) {
						t.Errorf("line %+v, was %+v", l, was)
					}
				}
			})
		})
	}
}

func (b *bench) checkEmpty() {
	b.t.Helper()
	b.neutron.With(func(s *cloud.Observation) {
		if len(s.Networks)+len(s.Subnets)+len(s.Ports)+len(s.Trunks) > 0 {
			b.t.Errorf("left in Neutron: %+v", s)
		}
	})

	if got := b.ports(1); got != -1 {
		b.t.Errorf("%d ports are published, want no pool", got)
	}
}

// A VM that was deleted after the last look is noticed when its Node is deleted.
func TestPools_releaseLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.set(1)
		pass(0)
		b.neutron.With(func(s *cloud.Observation) { s.VIFs[0].Device = "" })
		b.release(time.Hour)
		pass(0)
		b.checkEmpty()
	})
}

// A pool that waits for its release is not repaired, and its problems end.
func TestPools_waitingHasNoProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.set(1)
		pass(0)
		b.neutron.With(func(s *cloud.Observation) { s.Trunks[0].Subports[3].Tag = 999 })
		b.fail(&openstack.Error{Kind: openstack.Conflict}, isStep[cloud.RemoveSubports])
		pass(resync)
		b.checkReports("PortsRepaired: ")

		b.release(time.Hour)
		pass(retry)
		b.checkReports("PortsRepaired: ", "")
	})
}

// If the VM of a Node that is gone exists, its ports are kept for a while. A Node that comes back
// in time keeps them.
func TestPools_releaseAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.set(1)
		pass(0)

		_, made := b.neutron.calls()

		b.release(time.Hour)
		pass(59 * time.Minute)
		b.set(1)
		pass(2 * time.Hour)

		if _, steps := b.neutron.calls(); steps != made || b.ports(1) != 13 {
			t.Errorf("%d ports of a Node that came back, steps %q", b.ports(1), b.neutron.steps[made:])
		}

		b.release(time.Hour)
		pass(59 * time.Minute)

		if _, steps := b.neutron.calls(); steps != made {
			t.Errorf("steps before the time: %q", b.neutron.steps[made:])
		}

		pass(2 * time.Minute)
		b.checkEmpty()
	})
}
