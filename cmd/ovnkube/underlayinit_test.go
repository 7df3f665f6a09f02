package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
)

// The tests of master-init at a real Keystone and Neutron are in test/cloud.

// TestMasterInit_refusesBadInput: bad flags and files are refused with advice, before any request.
func TestMasterInit_refusesBadInput(t *testing.T) {
	const file = "../../controller/openstack/testdata/clouds.yaml"

	clouds, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}

	empty := filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(empty, []byte("clouds: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	config := filepath.Join(t.TempDir(), "ovn_k8s.conf")
	if err := os.WriteFile(config, []byte("[openstack]\ncloud=elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct{ name, args, want string }{
		{"no flags", "", "give --cloud, the name of an entry of clouds.yaml; give --vm-network"},
		{"no network", "--cloud k8s", "give --vm-network, the name or UUID of the network of the VMs"},
		{
			"unknown cloud", "--cloud k9s --vm-network vms --clouds-file " + clouds,
			clouds + ` has no entry "k9s": name one of its entries by --cloud: k8s (cloud is from`,
		},
		{
			"unknown cloud of the file", "--vm-network vms --clouds-file " + clouds + " --config-file " + config,
			"(cloud is from " + config + ":2",
		},
		{
			"no clouds", "--cloud k8s --vm-network vms --clouds-file " + empty,
			empty + ` has no entries below "clouds:"`,
		},
		{
			"no file", "--cloud k8s --vm-network vms --clouds-file /nowhere/clouds.yaml",
			"there is no file /nowhere/clouds.yaml: write the credentials of the project to it",
		},
		{"relative file", "--cloud k8s --vm-network vms --clouds-file clouds.yaml", "not an absolute path"},
		{"family", "--cloud k8s --vm-network vms --cluster-subnet fd00::/48", "not one IPv4 network"},
		{"host bits", "--cloud k8s --vm-network vms --cluster-subnet 10.244.0.1/16", "10.244.0.0/16"},
		{"router's name", "--cloud k8s --vm-network vms --router-id myrouter", "myrouter"},
		{"argument", "--cloud k8s --vm-network vms k8s", `unexpected argument "k8s"`},
		{
			"Keystone away", "--cloud k8s --vm-network vms --clouds-file " + clouds,
			"open cloud k8s: authenticate at http://127.0.0.1:1/v3: away: ",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer

			args := append([]string{"ovn-k8s-underlay", "master-init"}, strings.Fields(tt.args)...)
			err := run(t.Context(), args, &stdout, &stderr)
			exitCode(err, &stderr)

			if err == nil || !strings.Contains(stderr.String(), tt.want) || stdout.Len() > 0 {
				t.Errorf("error %q, standard output %q, want %q", &stderr, &stdout, tt.want)
			}
		})
	}
}

// TestPrintOpenstack_isRead: a configuration file with the printed section gives the controller the
// same values, without a warning.
func TestPrintOpenstack_isRead(t *testing.T) {
	const id = "%d0000000-0000-4000-8000-000000000000"

	uuid := func(n string) string { return strings.Replace(id, "%d", n, 1) }
	o := newOpenstackFlags()
	o.cloud, o.cloudsFile, o.clusterName = "my cloud; #1", "/etc/clouds.yaml", "k8s"
	want := o
	want.router, want.subnetPool, want.subnetPool6 = uuid("1"), uuid("2"), uuid("3")
	want.groups = uuids{uuid("4"), uuid("5")}

	var text bytes.Buffer

	err := printOpenstack(&text, o, cloud.Config{
		Cluster: "k8s", Router: uuid("1"), SubnetPool: uuid("2"), SubnetPool6: uuid("3"),
		Groups: []string{uuid("4"), uuid("5")},
	})
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "ovn_k8s.conf")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}

	s := newSettings("")
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	s.declare(flags, roleController)

	if err := flags.Parse([]string{"-config-file", file}); err != nil {
		t.Fatal(err)
	}

	problems, err := s.resolve(t.Context(), func(string) (string, bool) { return "", false })
	if err != nil || len(problems) > 0 {
		t.Errorf("problems %v, %v of\n%s", problems, err, &text)
	}

	if diff := cmp.Diff(want, s.controller.openstack, cmp.AllowUnexported(openstackFlags{})); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// smallSetup returns a setup in a project that lacks a router, a subnet pool and a security group.
func smallSetup() (cloud.Setup, cloud.SetupObservation) {
	none := cloud.Quota{Limit: -1}
	setup := cloud.Setup{
		Config: cloud.Config{Cluster: "k8s", Project: "project"}, VMNetwork: "vms",
		Prefix: netip.MustParsePrefix("10.244.0.0/16"),
	}

	return setup, cloud.SetupObservation{
		Observation: cloud.Observation{
			Networks: []cloud.Network{{ID: "n1", Name: "vms", Project: "project"}},
			Subnets: []cloud.Subnet{{
				ID: "s1", Network: "n1", Prefix: netip.MustParsePrefix("10.0.0.0/24"),
				Gateway: netip.MustParseAddr("10.0.0.1"),
			}},
			Quotas: cloud.Quotas{
				Networks: none, Subnets: none, Ports: none, Trunks: none,
				Routers: none, SubnetPools: none, SecurityGroups: none, Rules: none,
			},
		},
		Extensions: []string{"quotas", "router", "security-group", "subnet_allocation", "trunk"},
	}
}

// TestSetupRun_endsAtError: the run ends at the first error, says what it has made and how to
// continue, and names the flag with which a forbidden step is not needed.
func TestSetupRun_endsAtError(t *testing.T) {
	var progress bytes.Buffer

	r := setupRun{progress: &progress}
	r.setup, r.observed = smallSetup()

	var steps []string

	r.do = func(_ context.Context, step cloud.Step) (cloud.Result, error) {
		steps = append(steps, step.String())
		if create, is := step.(cloud.CreateRouter); is {
			return cloud.Result{Router: cloud.Router{
				ID: "r1", Name: create.Name, Description: create.Description, Project: "project",
			}}, nil
		}

		return cloud.Result{}, &openstack.Error{Kind: openstack.Refused, Call: "x", Status: 403}
	}

	err := r.complete(t.Context())
	if len(steps) != 2 || err == nil || !strings.Contains(err.Error(), "the next run of this command continues") {
		t.Errorf("steps %q, error %v", steps, err)
	}

	if want := "found: network of the VMs vms (n1)\nmade:  router k8s (r1)\n"; progress.String() != want {
		t.Errorf("progress %q, want %q", &progress, want)
	}
}

// TestSetupRun_isNotEndless: a step whose result is not in the response is not repeated.
func TestSetupRun_isNotEndless(t *testing.T) {
	r := setupRun{progress: new(bytes.Buffer)}
	r.setup, r.observed = smallSetup()
	calls := 0

	r.do = func(context.Context, cloud.Step) (cloud.Result, error) {
		calls++
		return cloud.Result{}, nil
	}
	if err := r.complete(t.Context()); err == nil || calls != 1 {
		t.Errorf("%d calls, error %v; want one call and an error", calls, err)
	}
}

// TestRemedy_namesFlag: only a step that the credentials may not do has advice.
func TestRemedy_namesFlag(t *testing.T) {
	for _, tt := range []struct {
		step   cloud.Step
		status int
		want   string
	}{
		{cloud.CreateRouter{}, 403, "--router-id"},
		{cloud.CreateSubnetPool{}, 403, "--subnet-pool"},
		{cloud.CreateSecurityGroup{}, 401, "--security-groups"},
		{cloud.CreateRule{}, 403, "--security-groups"},
		{cloud.AddInterface{}, 403, "access rules"},
		{cloud.CreateRouter{}, 409, ""},
	} {
		got := remedy(tt.step, &openstack.Error{Status: tt.status})
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%T, status %d: %q, want %q", tt.step, tt.status, got, tt.want)
		}
	}

	if got := remedy(cloud.CreateRouter{}, errors.New("away")); got != "" {
		t.Errorf("another error: %q", got)
	}
}
