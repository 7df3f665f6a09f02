package cloud_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
	testcloud "github.com/ovn-ebpf/ovn-ebpf/test/cloud"
)

// TestMasterInit_makesAll: in an empty project it makes router, gateway, interfaces, subnet pools
// and security group. A second run prints the same and makes nothing, also if it reads what the
// first has printed, and also if a node has its pool.
func TestMasterInit_makesAll(t *testing.T) {
	w := newOperatorsWork(t)
	args := []string{"--external-network", "public", "--cluster-subnet-6", "fd00:10:244::/48"}
	start := time.Now()
	section, progress := w.mustRun(args...)
	t.Logf("%.1f s:\n%s%s", time.Since(start).Seconds(), progress, section)

	s := settingsOf(section)

	given := map[string]string{
		"cloud": "k8s", "clouds-file": lab.CloudsFile, "cluster-name": "k8s",
	}
	for key, want := range given {
		if s[key] != want {
			t.Errorf("%s=%s, want %s", key, s[key], want)
		}
	}

	if len(s) != 7 {
		t.Errorf("section %q, want 7 keys", s)
	}

	w.checkMade(s)
	after := w.list()

	again, progress := w.mustRun(args...)
	if again != section || strings.Contains(progress, "made:") {
		t.Errorf("a second run prints %q and %q, want %q", again, progress, section)
	}

	w.same(after)

	file := filepath.Join(t.TempDir(), "ovn_k8s.conf")
	if err := os.WriteFile(file, []byte(section), 0o600); err != nil {
		t.Fatal(err)
	}

	if pasted, progress := w.mustRun("--config-file", file); pasted != section {
		t.Errorf("a run with the section in its file prints %q and %q, want %q", pasted, progress,
			section)
	}

	w.same(after)

	p := w.withNode(s)
	after = w.list()

	withNode, progress := w.mustRun(args...)
	if withNode != section || strings.Contains(progress, "made:") {
		t.Errorf("a run in a cluster with a node prints %q and %q, want %q", withNode, progress,
			section)
	}

	w.same(after)
	p()
}

// checkMade checks the objects with the IDs of the section.
func (w *operatorsWork) checkMade(s map[string]string) {
	t := w.t
	t.Helper()

	is := func(kind, id string) testcloud.Object {
		t.Helper()

		for _, o := range w.all(kind) {
			if o["id"] == id {
				return o
			}
		}

		t.Errorf("the project has no %s %q", kind, id)

		return nil
	}

	router := is("routers", s["router-id"])

	gateway, _ := router["external_gateway_info"].(testcloud.Object)
	if router["name"] != "k8s" || gateway["network_id"] != w.external {
		t.Errorf("router %v, want name k8s and a gateway in network %s", router, w.external)
	}

	var addresses []string

	for _, p := range w.all("ports") {
		if p["device_id"] == s["router-id"] && p["network_id"] == w.vms {
			for _, f := range p["fixed_ips"].([]any) {
				addresses = append(addresses, f.(testcloud.Object)["ip_address"].(string))
			}
		}
	}

	slices.Sort(addresses)

	if want := []string{"10.0.0.1", "fd00:10::1"}; !slices.Equal(addresses, want) {
		t.Errorf("the router has %v in the network of VMs, want %v", addresses, want)
	}

	for key, want := range map[string]string{
		"subnet-pool": "[10.244.0.0/16] 20 28 26", "subnet-pool-6": "[fd00:10:244::/48] 64 64 64",
	} {
		p := is("subnetpools", s[key])

		got := fmt.Sprintf("%v %v %v %v", p["prefixes"], p["min_prefixlen"], p["max_prefixlen"],
			p["default_prefixlen"])
		if got != want {
			t.Errorf("%s has %s, want %s", key, got, want)
		}
	}

	var rules []string

	for _, r := range is("security-groups", s["security-groups"])["security_group_rules"].([]any) {
		r := r.(testcloud.Object)
		rules = append(rules, fmt.Sprintf("%v %v %v %v %v %v", r["direction"], r["ethertype"],
			r["protocol"], r["remote_ip_prefix"], r["remote_group_id"], r["port_range_min"]))
	}

	slices.Sort(rules)

	want := []string{
		"egress IPv4 <nil> <nil> <nil> <nil>", "egress IPv6 <nil> <nil> <nil> <nil>",
		"ingress IPv4 <nil> <nil> <nil> <nil>", "ingress IPv6 <nil> <nil> <nil> <nil>",
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules of the security group (-want +got):\n%s", diff)
	}
}

// withNode has the controller's code make a node's pool with the settings of the section. The
// returned function removes it.
func (w *operatorsWork) withNode(s map[string]string) (leave func()) {
	w.t.Helper()
	p := &project{t: w.t, ctx: w.t.Context(), calls: map[string]int{}, vms: w.vms}
	p.client = p.open(openstack.Options{})
	p.config = cloud.Config{
		Cluster: "k8s", Project: lab.Project, Router: s["router-id"],
		SubnetPool: s["subnet-pool"], SubnetPool6: s["subnet-pool-6"],
		Groups: []string{s["security-groups"]},
	}
	pool := p.pool(p.vm("10.0.0.31"), 0)

	r, problems := p.settle(pool, nil)
	if len(problems) > 0 || len(r.Lines) != 13 || len(r.Gateways) != 2 {
		w.t.Errorf("pool of a node: %v, problems %v", r, problems)
	}

	pods := netip.MustParsePrefix("10.244.0.0/16")
	if len(r.Gateways) > 0 && !pods.Contains(r.Gateways[0].Address.Addr()) {
		w.t.Errorf("gateways %v, want the first in %s", r.Gateways, pods)
	}

	return func() { p.release(pool) }
}

// TestMasterInit_usesWhatIsThere: the router of the VMs' network is used, and so are the objects
// that flags name.
func TestMasterInit_usesWhatIsThere(t *testing.T) {
	w := newOperatorsWork(t)
	router := w.byProject("router", testcloud.Object{"name": "theirs"})
	w.interfaceOf(router, "add")
	pool := w.byProject("subnetpool", testcloud.Object{
		"name": "theirs", "prefixes": []string{"10.200.0.0/16"}, "default_prefixlen": 26,
	})
	group := w.byProject("security_group", testcloud.Object{"name": "theirs"})
	before := w.list()

	section, progress := w.mustRun("--subnet-pool", pool, "--security-groups", group)

	s := settingsOf(section)
	if s["router-id"] != router || s["subnet-pool"] != pool || s["security-groups"] != group {
		t.Errorf("section %q, want router %s, subnet pool %s, group %s", section, router, pool,
			group)
	}

	if strings.Contains(progress, "made:") {
		t.Errorf("progress %q, want nothing made", progress)
	}

	w.same(before)

	w.mustRun("--subnet-pool", pool, "--security-groups", group, "--external-network", w.external)

	for _, r := range w.all("routers") {
		gateway, _ := r["external_gateway_info"].(testcloud.Object)
		if r["id"] == router && gateway["network_id"] != w.external {
			t.Errorf("the router has no gateway: %v", r)
		}
	}
}

// TestMasterInit_refuses: what cannot work is refused with its remedy before anything is made.
func TestMasterInit_refuses(t *testing.T) {
	w := newOperatorsWork(t)
	router := w.byProject("router", testcloud.Object{"name": "theirs"})
	foreignRouter := w.byAdmin("router", testcloud.Object{"name": "foreign"})
	foreignPool := w.byAdmin("subnetpool", testcloud.Object{
		"name": "foreign", "prefixes": []string{"10.201.0.0/16"}, "default_prefixlen": 26,
	})
	sharedPool := w.byAdmin("subnetpool", testcloud.Object{
		"name": "shared", "prefixes": []string{"10.202.0.0/16"}, "default_prefixlen": 26,
		"shared": true,
	})
	largePool := w.byProject("subnetpool", testcloud.Object{
		"name": "large", "prefixes": []string{"10.0.0.0/8"}, "default_prefixlen": 26,
	})

	const nowhere = "00000000-0000-4000-8000-000000000000"

	for _, tc := range []struct {
		name, args string
		want       []string // parts of standard error
	}{
		{"unknown cloud", "--cloud k9s", []string{
			`no entry "k9s": name one of its entries by --cloud: admin, k8s`,
		}},
		{"wrong credentials", "--clouds-file " + wrongSecret(t), []string{
			"refused: status 401", "check the credentials of this entry in",
		}},
		{"router that does not exist", "--router-id " + nowhere, []string{
			"the project has no router " + nowhere, "openstack router list",
		}},
		{"router of another project", "--router-id " + foreignRouter, []string{
			"the project has no router " + foreignRouter, "the credentials may not see it",
		}},
		{"subnet pool of another project", "--subnet-pool " + foreignPool, []string{
			"the project has no subnet pool " + foreignPool, "the credentials may not see it",
		}},
		{"shared subnet pool of another project", "--subnet-pool " + sharedPool, []string{
			"subnet pool shared (" + sharedPool + ") (--subnet-pool) is of project",
			"use a subnet pool of this project",
		}},
		{"subnet pool that overlaps", "--subnet-pool " + largePool, []string{
			"10.0.0.0/8 of subnet pool large", "overlaps the service CIDR 10.96.0.0/16",
			"overlaps subnet 10.0.0.0/24 of the VMs' network", "give another --subnet-pool",
		}},
		{"cluster subnet that overlaps the VMs", "--cluster-subnet 10.0.0.0/16", []string{
			"--cluster-subnet 10.0.0.0/16 overlaps subnet 10.0.0.0/24",
			"give another --cluster-subnet",
		}},
		{
			"cluster subnet that overlaps Services",
			"--cluster-subnet 10.100.0.0/16 --k8s-service-cidrs 10.100.128.0/20",
			[]string{"overlaps the service CIDR 10.100.128.0/20", "give another --cluster-subnet"},
		},
		{"unknown network", "--vm-network vm", []string{
			`the project has no network "vm": name one of these by --vm-network: vms`,
		}},
		{"network that is not external", "--external-network vms", []string{
			"network vms is not external", "(public)",
		}},
		{"security group that does not exist", "--security-groups " + nowhere, []string{
			"the project has no security group " + nowhere,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { w.refuses(t, strings.Fields(tc.args), tc.want...) })
	}

	t.Run("another router of the VMs", func(t *testing.T) {
		other := w.byProject("router", testcloud.Object{"name": "other"})

		w.interfaceOf(other, "add")
		defer w.interfaceOf(other, "remove")

		w.refuses(t, []string{"--router-id", router},
			"has an interface of router "+other, "give --router-id "+other)
	})
	t.Run("quotas", func(t *testing.T) {
		rules := len(w.all("security-group-rules"))

		w.put(lab.Admin, "quotas/"+lab.Project, testcloud.Object{"quota": testcloud.Object{
			"port": 10, "security_group_rule": rules + 3,
		}})
		defer func() {
			path := "/v2.0/quotas/" + lab.Project // becomes the default again
			if _, err := lab.Admin.Do(w.t.Context(), "DELETE", path, nil); err != nil {
				t.Error(err)
			}

			all, err := lab.Admin.Do(w.t.Context(), "GET", path+"/default", nil)
			t.Log("default quotas", all, err)
		}()

		w.refuses(t, nil, "quota of ports: limit 10, used ", "needed 16 more",
			fmt.Sprintf("quota of security group rules: limit %d, used %d, needed 4 more", rules+3,
				rules))
	})
	t.Run("no trunks", func(t *testing.T) {
		before := w.list() // with the project's trunks, which this Neutron has not

		func() {
			defer changeNeutron(t, "router,trunk,", "router,")()

			w.fails(t, nil, "lacks the extension trunk",
				"ask the operator of the cloud to enable it")
		}()
		w.same(before)
	})
}

// refuses runs master-init, which must fail with the texts, print no section and make nothing.
func (w *operatorsWork) refuses(t *testing.T, args []string, want ...string) {
	t.Helper()

	before := w.list()
	w.fails(t, args, want...)
	w.same(before)
}

// fails runs master-init, which must fail with the texts and print no section.
func (w *operatorsWork) fails(t *testing.T, args []string, want ...string) {
	t.Helper()

	stdout, stderr, err := w.run(args...)
	t.Log(strings.TrimSpace(stderr))

	if err == nil || stdout != "" {
		t.Errorf("error %v, standard output %q; want an error alone", err, stdout)
	}

	for _, text := range want {
		if !strings.Contains(stderr, text) {
			t.Errorf("standard error lacks %q", text)
		}
	}
}

// wrongSecret returns a clouds.yaml with a secret that Keystone does not accept.
func wrongSecret(t *testing.T) string {
	t.Helper()

	text, err := os.ReadFile(lab.CloudsFile)
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "clouds.yaml")

	wrong := regexp.MustCompile("(_secret: ).*").ReplaceAll(text, []byte("${1}wrong"))
	if err := os.WriteFile(file, wrong, 0o600); err != nil {
		t.Fatal(err)
	}

	return file
}

// changeNeutron restarts Neutron with a change of its configuration. The returned function reverts
// this.
func changeNeutron(t *testing.T, from, to string) (revert func()) {
	t.Helper()

	file := filepath.Join(filepath.Dir(lab.CloudsFile), "neutron.conf")
	restart := func(from, to string) {
		t.Helper()

		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(string(text), from) {
			t.Fatalf("%s lacks %q", file, from)
		}

		changed := strings.Replace(string(text), from, to, 1)
		if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}

		if err := lab.StopNeutron(); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()

		if err := lab.ResumeNeutron(ctx); err != nil {
			t.Fatal(err)
		}
	}
	restart(from, to)

	return func() { restart(to, from) }
}

// TestMasterInit_interrupted: a run that is killed after any of its steps is continued by the next
// one, which comes to the same objects as a run without interruption.
func TestMasterInit_interrupted(t *testing.T) {
	w := newOperatorsWork(t)
	args := []string{"--external-network", "public"}
	_, progress := w.mustRun(args...)
	want := w.shape()
	w.remove(w.listed)
	w.same(w.listed)

	steps := 0

	for line := range strings.Lines(progress) {
		if !strings.HasPrefix(line, "made:") {
			continue
		}

		steps++

		if strings.Contains(line, "external gateway") || strings.Contains(line, "egress") {
			continue // made by the same step as the line before
		}

		last := w.killed(steps, args...)
		w.mustRun(args...)

		if diff := cmp.Diff(want, w.shape()); diff != "" {
			t.Errorf("killed after %q (-without interruption +continued):\n%s", last, diff)
		}

		w.remove(w.listed)
		w.same(w.listed)
	}

	if steps != 9 {
		t.Errorf("%d objects made, want 9: %s", steps, progress)
	}
}

// killed runs master-init and kills it when it has reported so many objects as made.
func (w *operatorsWork) killed(after int, args ...string) (last string) {
	w.t.Helper()
	cmd := w.command(args...)

	stderr, err := cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}

	made := 0
	for lines := bufio.NewScanner(stderr); made < after && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "made:") {
			made++
			last = lines.Text()
		}
	}

	if err := cmd.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}

	_, _ = io.Copy(io.Discard, stderr)
	_ = cmd.Wait() // killed, or at its end

	if made < after {
		w.t.Errorf("%d objects made, want %d", made, after)
	}

	return last
}

// shape returns the project's objects without what differs between runs.
func (w *operatorsWork) shape() []string {
	w.t.Helper()

	var out []string

	for _, kind := range kinds {
		for _, o := range w.all(kind) {
			if strings.Contains(strings.Join(w.listed, ""), o["id"].(string)) {
				continue
			}

			out = append(out, fmt.Sprintln(kind, o["name"], o["description"], o["prefixes"],
				o["direction"], o["ethertype"], o["device_owner"]))
		}
	}

	slices.Sort(out)

	return out
}
