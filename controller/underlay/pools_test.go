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
	looks []time.Time                 // calls of Observe
	steps []string                    // calls of Do
}

// Observe implements Neutron.
func (f *faulty) Observe(ctx context.Context, pool string, vif *openstack.PortFilter) (cloud.Seen, error) {
	f.mu.Lock()
	f.looks = append(f.looks, time.Now())
	fault := f.fault
	f.mu.Unlock()
	if fault != nil {
		if err := fault(nil); err != nil {
			return cloud.Seen{}, err
		}
	}
	return f.Neutron.Observe(ctx, pool, vif)
}

// Do implements Neutron.
func (f *faulty) Do(ctx context.Context, step cloud.Step) (cloud.Result, error) {
	f.mu.Lock()
	f.steps = append(f.steps, step.String())
	fault := f.fault
	f.mu.Unlock()
	if fault != nil {
		if err := fault(step); err != nil {
			return cloud.Result{}, err
		}
	}
	return f.Neutron.Do(ctx, step)
}

// calls returns the numbers of calls so far.
func (f *faulty) calls() (looks, steps int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.looks), len(f.steps)
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
			Fixed: []cloud.Fixed{{Subnet: "vms", Address: v.Address}},
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

// Each lasting refusal of the cloud is one problem with its remedy. It is retried every 30 seconds
// and ends when the cloud accepts the request.
func TestPools_refusals(t *testing.T) {
	subnet, trunk, ports := isStep[cloud.CreateSubnet], isStep[cloud.CreateTrunk], isStep[cloud.CreatePorts]
	for name, tt := range map[string]struct {
		err    openstack.Error
		match  func(cloud.Step) bool // nil: also Observe
		reason cloud.Reason
		remedy string
	}{
		"quota": {
			openstack.Error{Kind: openstack.Quota, Type: "OverQuota"},
			ports,
			cloud.QuotaExceeded, "raise the project's quota",
		},
		"empty subnet pool": {
			openstack.Error{Kind: openstack.Quota, Status: 500, Type: openstack.TypeSubnetAllocation},
			subnet,
			cloud.SubnetPoolEmpty, "openstack subnet pool set --pool-prefix",
		},
		"trunks forbidden": {
			openstack.Error{Kind: openstack.Refused, Status: 403, Call: "create trunk"},
			trunk,
			cloud.RequestForbidden, "underlay mode needs trunks",
		},
		"subnet pool forbidden": {
			openstack.Error{Kind: openstack.Refused, Status: 403, Call: "create subnet"},
			subnet,
			cloud.RequestForbidden, "shared with the project (--subnet-pool)",
		},
		"credentials": {
			openstack.Error{Kind: openstack.Refused, Status: 401, Call: "get quotas"},
			nil,
			cloud.CredentialsRefused, "write valid ones to clouds.yaml, and restart the controller",
		},
		"trunk on a running VM": {
			openstack.Error{Kind: openstack.Refused, Status: 409, Type: openstack.TypeParentPortInUse},
			trunk,
			cloud.TrunkRefused, "make the trunk before the VM boots (Cluster API: trunk: true)",
		},
		"trunk in use": {
			openstack.Error{Kind: openstack.Refused, Status: 409, Type: openstack.TypeTrunkInUse},
			isStep[cloud.AddSubports],
			cloud.TrunkRefused, "make the trunk before the VM boots",
		},
		"trunk disabled": {
			openstack.Error{Kind: openstack.Refused, Status: 409, Type: openstack.TypeTrunkDisabled},
			isStep[cloud.AddSubports],
			cloud.TrunkRefused, "openstack network trunk set --enable",
		},
		"trunk in error": {
			openstack.Error{Kind: openstack.Refused, Status: 409, Type: openstack.TypeTrunkInError},
			isStep[cloud.AddSubports],
			cloud.TrunkRefused, "openstack network trunk show",
		},
		"MTU of subports": {
			openstack.Error{Kind: openstack.Refused, Status: 409, Type: openstack.TypeSubportMTU},
			isStep[cloud.AddSubports],
			cloud.MTUTooSmall, "the network of the VMs has a smaller MTU",
		},
		"other refusal": {
			openstack.Error{Kind: openstack.Refused, Status: 400, Type: "InvalidInput"},
			ports,
			cloud.RequestRefused, "check the settings of section [openstack]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.fail(&tt.err, tt.match)
				b.set(1)
				pass(5 * time.Second)
				want := string(tt.reason) + ": pool of node node1: "
				b.checkReports(want)
				if !strings.HasSuffix(b.reports[0], tt.remedy) && !strings.Contains(b.reports[0], tt.remedy) {
					t.Errorf("report %q has no remedy %q", b.reports[0], tt.remedy)
				}
				if s := b.pools.Status()[0]; s.Err == nil || len(s.Problems) != 1 {
					t.Errorf("status %+v, want the error and the problem", s)
				}

				before, _ := b.neutron.calls()
				pass(5 * time.Minute)
				if looks, _ := b.neutron.calls(); looks-before != 10 {
					t.Errorf("%d looks in five minutes, want 10", looks-before)
				}
				b.checkReports(want)

				b.fail(nil, nil)
				pass(retry)
				b.checkReports(want, "")
				if got := b.ports(1); got != 13 {
					t.Errorf("%d ports, want 13", got)
				}
			})
		})
	}
}

// Neutron says ParentPortInUse also if an answer was lost, and the port has a trunk already. The
// next look finds it, and nothing is reported.
func TestPools_trunkOfLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		lost := false
		b.neutron.fault = func(step cloud.Step) error {
			if !isStep[cloud.CreateTrunk](step) || lost {
				return nil
			}
			lost = true
			if _, err := b.neutron.Neutron.Do(t.Context(), step); err != nil {
				return err
			}
			return &openstack.Error{Kind: openstack.Refused, Status: 409, Type: openstack.TypeParentPortInUse}
		}
		b.set(1)
		pass(2 * time.Second)
		b.checkReports()
		if got := b.ports(1); got != 13 || !lost {
			t.Errorf("%d ports, want 13", got)
		}
	})
}

// A quota is one problem, although each batch of ports leaves less room.
func TestPools_quota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.neutron.With(func(s *cloud.Seen) { s.Quotas.Ports.Limit = 12 })
		b.set(1)
		pass(5 * time.Second)
		b.checkReports("QuotaExceeded: quota of ports: limit 12, used 12, wanted 3: raise the project's quota")
		if got := b.ports(1); got != 10 {
			t.Errorf("%d ports, want the 10 that fit", got)
		}

		b.neutron.With(func(s *cloud.Seen) { s.Quotas.Ports.Limit = -1 })
		pass(retry)
		b.checkReports("QuotaExceeded: ", "")
	})
}

// An outage is one problem, which says since when, and only if it lasts. The node keeps its ports.
func TestPools_cloudAway(t *testing.T) {
	away := map[string]*openstack.Error{
		"away": {Kind: openstack.Away, Call: "get quotas"},
		"busy": {Kind: openstack.Busy, Status: 503, Call: "get quotas"},
	}
	for name, e := range away {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.set(1)
				pass(0)
				b.fail(e, nil)
				pass(resync + 5*time.Second) // after the next look
				b.checkReports()
				b.fail(nil, nil)
				pass(5 * time.Second) // a short outage is no problem
				b.checkReports()

				b.fail(e, nil)
				pass(resync)
				since := time.Now().UTC().Format(time.RFC3339)
				pass(time.Hour)
				want := "CloudAway: pool of node node1: OpenStack is away since "
				b.checkReports(want)
				if got := b.ports(1); got != 13 {
					t.Errorf("%d ports in an outage, want 13", got)
				}
				text := strings.TrimPrefix(b.reports[0], want)
				at, _, _ := strings.Cut(text, ": ")
				first, err := time.Parse(time.RFC3339, at)
				if limit, _ := time.Parse(time.RFC3339, since); err != nil || first.After(limit) || limit.Sub(first) > resync {
					t.Errorf("away since %q, %v; want a time before %s", at, err, since)
				}

				b.fail(nil, nil)
				pass(retry)
				b.checkReports(want, "")
			})
		})
	}
}

// A request that ends with the context, when the leadership is lost, is no failure.
func TestPools_endDuringRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t) // its cleanup ends the context, and waits for the request
		b.neutron.fault = func(cloud.Step) error {
			time.Sleep(time.Minute)
			return context.Canceled
		}
		b.set(1)
		pass(time.Second)
		b.checkReports()
	})
}

// A conflict that no look cures is a problem after a while.
func TestPools_lastingConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fail(&openstack.Error{Kind: openstack.Conflict, Status: 409, Call: "create ports"}, isStep[cloud.CreatePorts])
		b.set(1)
		pass(5 * time.Second)
		b.checkReports()
		pass(time.Minute)
		b.checkReports("RequestRefused: pool of node node1: Neutron refuses the request since ")
	})
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
		pass(mostPause + time.Second)
		if got := b.ports(1); got != 13 {
			t.Errorf("%d ports, want 13", got)
		}
	})
}

// An error of Publish concerns the API server. It is no reason to look at Neutron again, and no
// problem of the cloud.
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
		b.set(1)
		pass(time.Hour)
		before, _ := b.neutron.calls()
		b.fail(&openstack.Error{Kind: openstack.Away}, nil)
		b.pools.Release(cloud.Pool{Config: cloud.Config{Cluster: "k8s", Router: router}, Node: nodeName(1)}, nil, 0)
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
		b.neutron.With(func(s *cloud.Seen) {
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

		b.neutron.With(func(s *cloud.Seen) { s.VIFs[0].Device = "" })
		pass(resync)
		b.checkReports("VIFWithoutVM: ")
		b.neutron.With(func(s *cloud.Seen) {
			s.Trunks = nil
			for i := range s.Ports {
				if s.Ports[i].Owner == "trunk:subport" {
					s.Ports[i].Owner = ""
				}
			}
		})
		pass(resync)
		b.neutron.With(func(s *cloud.Seen) { s.VIFs = s.VIFs[1:] })
		pass(resync)
		if _, steps := b.neutron.calls(); steps != made {
			t.Errorf("steps for a VM that is being deleted: %q", b.neutron.steps[made:])
		}

		b.pools.Release(cloud.Pool{Config: cloud.Config{Cluster: "k8s", Router: router}, Node: nodeName(1)}, nil, time.Hour)
		pass(0)
		b.checkEmpty()
	})
}

// Ports that another program deletes, retags or readdresses, and ports whose trunk it deletes, are
// held until they are repaired. The repair is one problem, and the ports are as before.
func TestPools_repairs(t *testing.T) {
	for name, change := range map[string]func(s *cloud.Seen){
		"a port is deleted": func(s *cloud.Seen) {
			s.Trunks[0].Subports = slices.Delete(s.Trunks[0].Subports, 3, 4)
			s.Ports = slices.Delete(s.Ports, 4, 5) // the first one is the router's
		},
		"a port is retagged": func(s *cloud.Seen) { s.Trunks[0].Subports[3].Tag = 999 },
		"a port has another address": func(s *cloud.Seen) {
			const unused = "10.244.0.15"
			s.Ports[4].Fixed = []cloud.Fixed{{Subnet: s.Subnets[0].ID, Address: netip.MustParseAddr(unused)}}
		},
		"the trunk is deleted": func(s *cloud.Seen) {
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
	b.neutron.With(func(s *cloud.Seen) {
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
		b.neutron.With(func(s *cloud.Seen) { s.VIFs[0].Device = "" })
		b.pools.Release(cloud.Pool{Config: cloud.Config{Cluster: "k8s", Router: router}, Node: nodeName(1)}, nil, time.Hour)
		pass(0)
		b.checkEmpty()
	})
}

// If the VM of a Node that is gone exists, its ports are kept for a while. A Node that comes back
// in time keeps them.
func TestPools_releaseAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		release := func() {
			b.pools.Release(cloud.Pool{Config: cloud.Config{Cluster: "k8s", Router: router}, Node: nodeName(1)}, nil, time.Hour)
		}
		b.set(1)
		pass(0)
		_, made := b.neutron.calls()

		release()
		pass(59 * time.Minute)
		b.set(1)
		pass(2 * time.Hour)
		if _, steps := b.neutron.calls(); steps != made || b.ports(1) != 13 {
			t.Errorf("%d ports of a Node that came back, steps %q", b.ports(1), b.neutron.steps[made:])
		}

		release()
		pass(59 * time.Minute)
		if _, steps := b.neutron.calls(); steps != made {
			t.Errorf("steps before the time: %q", b.neutron.steps[made:])
		}
		pass(2 * time.Minute)
		b.checkEmpty()
	})
}
