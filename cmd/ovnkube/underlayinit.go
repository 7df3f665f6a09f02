package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
)

const masterInitDetail = `It needs the credentials of the project, as an entry of clouds.yaml, and the network
of the VMs that are nodes:

  ovnkube ovn-k8s-underlay master-init --cloud k8s --vm-network vms --external-network public

It makes a router with an interface in this network, subnet pools for pods, and a security group
that allows everything. It uses the router that the network has already, and the objects that the
flags name. It makes nothing if an object cannot be used, if networks overlap, or if a quota has no
room for one node. It prints the section [openstack] of ovn_k8s.conf to standard output, and its
progress to standard error.

It is idempotent: a second run finds all objects by their names and descriptions, and prints the
same. If a run was interrupted, the next one continues.`

func underlaySetupCommands() *command {
	return &command{
		name: "ovn-k8s-underlay", group: groupFirstReleases, summary: "set up the OpenStack project of " +
			"underlay mode",
		children: []*command{{
			name: "master-init",
			summary: "make router, subnet pools and security group of a cluster, and print their " +
				"UUIDs",
			detail: masterInitDetail, setup: masterInitCommand,
		}},
	}
}

// masterInit is a run of ovn-k8s-underlay master-init.
type masterInit struct {
	*settings
	vmNetwork, externalNetwork string
	prefix, prefix6            prefixes // of the subnet pools; at most one each
}

// defaultPodPrefix is the prefix of a new IPv4 subnet pool.
const defaultPodPrefix = "10.244.0.0/16"

func masterInitCommand(f *flag.FlagSet) action {
	m := &masterInit{settings: newSettings("")}
	m.declareConfigFile(f)
	m.DeclareSome(f, "cloud", "clouds-file", "cluster-name", "router-id", "subnet-pool",
		"subnet-pool-6", "security-groups", "request-rate", "k8s-service-cidrs")

	for name, usage := range map[string]string{
		"router-id":   "`UUID` of the router; default: that of --vm-network, or else a new one",
		"cloud":       "`name` of the entry of clouds.yaml with the credentials (required)",
		"subnet-pool": "`UUID` of the subnet pool with pods' IPv4 addresses; default: a new one",
		"subnet-pool-6": "`UUID` of the subnet pool with pods' IPv6 addresses; default: none, " +
			"or a new one with --cluster-subnet-6",
		"security-groups": "`UUIDs` of the security groups of pods, separated by commas; " +
			"default: a new group that allows everything",
		"cluster-name": "`name` of this cluster in Neutron: of the objects that are made. " +
			"Clusters in one project need different names",
		"request-rate": "maximum number of `requests` per second to OpenStack",
		"k8s-service-cidrs": "service `networks` of the cluster, separated by commas, which must " +
			"not overlap others",
	} {
		f.Lookup(name).Usage = usage
	}

	f.StringVar(&m.vmNetwork, "vm-network", "", "`network` of the VMs that are nodes: its name "+
		"or UUID (required)")
	f.StringVar(&m.externalNetwork, "external-network", "",
		"external `network` of the router's gateway: its name or UUID; default: the router gets "+
			"no gateway")
	f.Var(oneNetwork{&m.prefix, true}, "cluster-subnet",
		"IPv4 `network` of pods; each node gets a part of it; default: "+defaultPodPrefix+
			", or that of --subnet-pool")
	f.Var(oneNetwork{&m.prefix6, false}, "cluster-subnet-6",
		"IPv6 `network` of pods; each node gets a /64 of it; default: pods have IPv4 "+
			"addresses only")

	return func(ctx context.Context, _ []string, env *environment) error {
		if _, err := m.load(ctx, env); err != nil {
			return err
		}

		if err := m.checkRequired(); err != nil {
			return err
		}

		return m.run(ctx, env)
	}
}

// checkRequired returns an error for each missing flag.
func (m *masterInit) checkRequired() error {
	var errs []error
	if m.controller.openstack.cloud == "" {
		errs = append(errs, errors.New("give --cloud, the name of an entry of clouds.yaml"))
	}

	if m.vmNetwork == "" {
		errs = append(errs, errors.New("give --vm-network, the name or UUID of the network of "+
			"the VMs"))
	}

	return errors.Join(errs...)
}

// run sets up the project.
func (m *masterInit) run(ctx context.Context, env *environment) error {
	o := m.controller.openstack

	client, err := openstack.Open(ctx, openstack.Options{
		Cloud: o.cloud, File: o.cloudsFile,
		Rate: float64(o.requestRate), Workers: 1, Timeout: setupTimeout,
	})
	if err != nil {
		return m.located(err)
	}

	setup := m.setup(client.Project())

	observed, err := client.ObserveSetup(ctx, setup)
	if err != nil {
		return fmt.Errorf("look at project %s: %w", client.Project(), err)
	}

	run := setupRun{setup: setup, observed: observed, do: client.Do, progress: env.stderr}
	if err := run.complete(ctx); err != nil {
		return err
	}

	return printOpenstack(env.stdout, o, setup.Complete(run.observed))
}

// setupTimeout bounds a request, including the time until the request rate allows it.
const setupTimeout = time.Minute

// setup returns what the cluster needs in the project.
func (m *masterInit) setup(project string) cloud.Setup {
	o := m.controller.openstack

	s := cloud.Setup{
		Config: cloud.Config{
			Cluster: o.clusterName, Project: project, Router: o.router,
			SubnetPool: o.subnetPool, SubnetPool6: o.subnetPool6, Groups: o.groups,
		},
		VMNetwork: m.vmNetwork, ExternalNetwork: m.externalNetwork,
		ServiceCIDRs: m.cluster.serviceCIDRs,
	}
	switch {
	case len(m.prefix) > 0:
		s.Prefix = m.prefix[0]
	case o.subnetPool == "":
		s.Prefix = netip.MustParsePrefix(defaultPodPrefix)
	}

	if len(m.prefix6) > 0 {
		s.Prefix6 = m.prefix6[0]
	}

	return s
}

// setupRun brings about a setup, step by step.
type setupRun struct {
	setup    cloud.Setup
	observed cloud.SetupObservation
	do       func(context.Context, cloud.Step) (cloud.Result, error)
	progress io.Writer // gets a line for each object that is found or made
}

// complete executes the setup's plan to its end. It makes nothing if the plan has problems.
func (r *setupRun) complete(ctx context.Context) error {
	plan := r.setup.Plan(r.observed)
	if len(plan.Problems) > 0 {
		return r.printProblems(plan.Problems, "nothing was made")
	}

	known := r.setup.Inventory(r.observed)
	for _, line := range known {
		fmt.Fprintln(r.progress, "found:", line)
	}

	// Each step changes the plan: the IDs of new objects are known only afterwards.
	for previous := ""; len(plan.Steps) > 0; plan = r.setup.Plan(r.observed) {
		step := plan.Steps[0]
		if step.String() == previous {
			return fmt.Errorf("%s: the request succeeded, but the object is not in Neutron's "+
				"response", step)
		}

		previous = step.String()

		result, err := r.do(ctx, step)
		if err != nil {
			return fmt.Errorf("%w%s; objects that were made stay, and the next run of this "+
				"command continues", err, remedy(step, err))
		}

		r.observed = r.observed.After(step, result)
		known = r.printNew(known)
	}

	if len(plan.Problems) > 0 {
		return r.printProblems(plan.Problems, "the setup is not complete")
	}

	return nil
}

// printNew prints the objects that are not in known, and returns all.
func (r *setupRun) printNew(known []string) []string {
	all := r.setup.Inventory(r.observed)
	for _, line := range all {
		if !slices.Contains(known, line) {
			fmt.Fprintln(r.progress, "made: ", line)
		}
	}

	return all
}

// printProblems prints the problems, one in a line, and returns an error with the outcome.
func (r *setupRun) printProblems(problems []cloud.Problem, outcome string) error {
	for _, p := range problems {
		fmt.Fprintln(r.progress, "refused:", p.Text)
	}

	return fmt.Errorf("set up project %s: refused for the reasons above: %s", r.setup.Project, outcome)
}

// remedy returns the advice for a step that the cloud's policy, or the access rules of an
// application credential, forbid. It is empty for other errors.
func remedy(step cloud.Step, err error) string {
	var refused *openstack.Error
	if !errors.As(err, &refused) {
		return ""
	}

	if refused.Status != http.StatusForbidden && refused.Status != http.StatusUnauthorized {
		return ""
	}

	flag := ""

	switch step.(type) {
	case cloud.CreateRouter:
		flag = ", or name an existing router by --router-id"
	case cloud.CreateSubnetPool:
		flag = ", or name an existing subnet pool by --subnet-pool or --subnet-pool-6"
	case cloud.CreateSecurityGroup, cloud.CreateRule:
		flag = ", or name existing security groups by --security-groups"
	}

	return ": the credentials may not do this: allow it in the policy of Neutron, or in the " +
		"access rules of the application credential" + flag
}

// printOpenstack prints the section of ovn_k8s.conf.
func printOpenstack(w io.Writer, o openstackFlags, c cloud.Config) error {
	groups := uuids(c.Groups)
	text := "[" + openstackSection + "]\n"

	for _, line := range []struct{ key, value string }{
		{"cloud", o.cloud},
		{"clouds-file", o.cloudsFile},
		{"cluster-name", c.Cluster},
		{"router-id", c.Router},
		{"subnet-pool", c.SubnetPool},
		{"subnet-pool-6", c.SubnetPool6},
		{"security-groups", groups.String()},
	} {
		if line.value != "" {
			text += line.key + "=" + iniValue(line.value) + "\n"
		}
	}

	_, err := io.WriteString(w, text)

	return err
}

// plainValue matches values that need no quotes in ovn_k8s.conf.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9_./:,@-]+$`)

func iniValue(value string) string {
	if plainValue.MatchString(value) {
		return value
	}

	return strconv.Quote(value)
}
