package cloud_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
)

// TestQuotaLeavesWhatFits: a pool gets the ports that the quota allows, its problem says what is
// missing, and it is completed once there is room.
func TestQuotaLeavesWhatFits(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	pool := p.pool(p.vm("10.0.0.18"), 0)
	used := p.observe(pool, nil).Quotas.Ports.Used
	p.portQuota(used + 7)

	r, problems := p.settle(pool, nil)
	if len(r.Lines) != 5 || len(problems) != 1 || problems[0].Reason != cloud.QuotaExceeded {
		t.Errorf("%d lines, problems %v: want the five ports that fit beside those of router and metadata", len(r.Lines), problems)
	}

	t.Log(problems)

	port := cloud.Port{Network: r.Network, Groups: p.config.Groups}

	_, err := p.client.CreatePorts(t.Context(), []cloud.Port{port, port})
	if openstack.KindOf(err) != openstack.Quota {
		t.Errorf("ports over the quota: %v, want kind quota", err)
	}

	p.portQuota(-1)

	r, problems = p.settle(pool, r.Lines)
	if len(r.Lines) != 13 || len(problems) != 0 {
		t.Errorf("%d lines, problems %v, want 13 and none", len(r.Lines), problems)
	}

	p.release(pool)
}

// TestErrorKinds: what Neutron and Keystone answer to wrong requests has the kind that the caller
// acts on.
func TestErrorKinds(t *testing.T) {
	p := newProject(t)
	p.config.SubnetPool6 = ""
	pool := p.pool(p.vm("10.0.0.19"), 0)
	r, _ := p.settle(pool, nil)
	subnet := p.observe(pool, nil).Subnets[0]
	line := r.Lines[0]

	const nowhere = "00000000-0000-0000-0000-000000000000"

	for _, tc := range []struct {
		name string
		want openstack.Kind
		do   func(context.Context) error
	}{
		{"address in use", openstack.Conflict, func(ctx context.Context) error {
			fixed := []cloud.FixedIP{{Subnet: subnet.ID, Address: line.Addresses[0]}}
			_, err := p.client.CreatePorts(ctx, []cloud.Port{{Network: r.Network, FixedIPs: fixed, Groups: []string{}}})

			return err
		}},
		{"tag in use", openstack.Conflict, func(ctx context.Context) error {
			return p.client.AddSubports(ctx, r.Trunk, []cloud.Subport{{Port: line.Port, Tag: line.Tag}})
		}},
		{"trunk on a VIF that has one", openstack.Refused, func(ctx context.Context) error {
			_, err := p.client.CreateTrunk(ctx, cloud.CreateTrunk{Name: "x", Port: r.VIF})
			return err
		}},
		{"delete a subport", openstack.Conflict, func(ctx context.Context) error { return p.client.DeletePort(ctx, line.Port) }},
		{"delete a network in use", openstack.Conflict, func(ctx context.Context) error { return p.client.DeleteNetwork(ctx, r.Network) }},
		{"trunk that is gone", openstack.Gone, func(ctx context.Context) error {
			return p.client.AddSubports(ctx, nowhere, []cloud.Subport{{Port: line.Port, Tag: 99}})
		}},
		{"network that is gone", openstack.Gone, func(ctx context.Context) error {
			_, err := p.client.CreatePorts(ctx, []cloud.Port{{Network: nowhere, Groups: []string{}}})
			return err
		}},
		{"security group that is gone", openstack.Gone, func(ctx context.Context) error {
			return p.client.SetGroups(ctx, line.Port, []string{nowhere})
		}},
		{"delete a port that is gone", openstack.OK, func(ctx context.Context) error { return p.client.DeletePort(ctx, nowhere) }},
		{"tag out of range", openstack.Refused, func(ctx context.Context) error {
			return p.client.AddSubports(ctx, r.Trunk, []cloud.Subport{{Port: line.Port, Tag: 5000}})
		}},
		{"prefix length out of the pool's range", openstack.Refused, func(ctx context.Context) error {
			_, err := p.client.CreateSubnet(ctx, cloud.CreateSubnet{Network: r.Network, Name: "x", SubnetPool: p.config.SubnetPool, Length: 30})
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.do(t.Context())
			t.Log(err)

			if got := openstack.KindOf(err); got != tc.want {
				t.Errorf("kind %s, want %s", got, tc.want)
			}
		})
	}

	p.release(pool)
}

// TestWrongSecretIsRefused: credentials that Keystone does not accept are refused, which repeating
// does not help.
func TestWrongSecretIsRefused(t *testing.T) {
	needCloud(t)

	text, err := os.ReadFile(lab.CloudsFile)
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "clouds.yaml")

	wrong := regexp.MustCompile("(_secret: ).*").ReplaceAll(text, []byte("${1}wrong"))
	if err := os.WriteFile(file, wrong, 0o600); err != nil {
		t.Fatal(err)
	}

	_, err = openstack.Open(t.Context(), openstack.Options{Cloud: "k8s", File: file, Rate: 10, Workers: 1, Timeout: time.Minute})
	if openstack.KindOf(err) != openstack.Refused {
		t.Errorf("open with a wrong secret: %v, want kind refused", err)
	}
}

// TestNeutronAway: while Neutron is stopped requests are of kind away. Afterwards the same client
// goes on.
func TestNeutronAway(t *testing.T) {
	p := newProject(t)
	if err := lab.StopNeutron(); err != nil {
		t.Fatal(err)
	}

	_, err := p.client.Quotas(t.Context())
	if openstack.KindOf(err) != openstack.Away {
		t.Errorf("request without Neutron: %v, want kind away", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	if err := lab.ResumeNeutron(ctx); err != nil {
		t.Fatal(err)
	}

	if _, err := p.client.Quotas(t.Context()); err != nil {
		t.Error(err)
	}
}
