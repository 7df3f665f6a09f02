package underlay

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
)

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
		b.neutron.With(func(s *cloud.Observation) { s.Quotas.Ports.Limit = 12 })
		b.set(1)
		pass(5 * time.Second)
		b.checkReports("QuotaExceeded: quota of ports: limit 12, used 12, wanted 3: raise the project's quota")

		if got := b.ports(1); got != 10 {
			t.Errorf("%d ports, want the 10 that fit", got)
		}

		b.neutron.With(func(s *cloud.Observation) { s.Quotas.Ports.Limit = -1 })
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
				pass(5 * time.Second) // a short outage is not reported
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

// A request that is canceled does not count as a failure. Requests are canceled when the leadership
// is lost.
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
