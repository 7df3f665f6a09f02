package cloud_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	testcloud "github.com/ovn-ebpf/ovn-ebpf/test/cloud"
)

// operatorsWork is what the operator of a cluster has before the first command: a network of VMs,
// and the cloud's external network.
type operatorsWork struct {
	t           *testing.T
	program     string   // path of ovn-k8s-underlay
	vms, subnet string   // IDs of the network of VMs and its subnet 10.0.0.0/24
	external    string   // ID of the external network
	listed      []string // the project's objects before the first command
}

// newOperatorsWork makes the networks. The test's end removes everything that the test has left in
// the project.
func newOperatorsWork(t *testing.T) *operatorsWork {
	t.Helper()
	needCloud(t)

	bin := os.Getenv("BIN_DIR")
	if bin == "" {
		t.Fatal("BIN_DIR is not set: the directory of the built programs")
	}

	w := &operatorsWork{t: t, program: filepath.Join(t.TempDir(), "ovn-k8s-underlay")}
	if err := os.Symlink(filepath.Join(bin, "ovnkube"), w.program); err != nil {
		t.Fatal(err)
	}

	before := w.list()
	w.external = w.byAdmin("network", testcloud.Object{"name": "public", "router:external": true})
	w.byAdmin("subnet", testcloud.Object{
		"network_id": w.external, "ip_version": 4, "cidr": "172.31.0.0/24", "enable_dhcp": false,
	})
	t.Cleanup(func() { w.remove(before) })

	project := testcloud.Batch{API: lab.Tenant}
	w.vms = project.Create(t.Context(), "network", testcloud.Object{"name": "vms"})
	w.subnet = project.Create(t.Context(), "subnet", testcloud.Object{
		"network_id": w.vms, "ip_version": 4, "cidr": "10.0.0.0/24", "enable_dhcp": false,
	})
	project.Create(t.Context(), "subnet", testcloud.Object{
		"network_id": w.vms, "ip_version": 6, "cidr": "fd00:10::/64", "gateway_ip": "fd00:10::1",
		"enable_dhcp": false,
	})

	if project.Err != nil {
		t.Fatal(project.Err)
	}

	w.listed = w.list()

	return w
}

// byAdmin makes an object of the cloud's operator, which the test's end removes.
func (w *operatorsWork) byAdmin(kind string, o testcloud.Object) string {
	w.t.Helper()

	b := testcloud.Batch{API: lab.Admin}

	id := b.Create(w.t.Context(), kind, o)
	if b.Err != nil {
		w.t.Fatal(b.Err)
	}

	path := "/v2.0/" + strings.ReplaceAll(kind, "_", "-") + "s/" + id

	w.t.Cleanup(func() {
		if _, err := lab.Admin.Do(context.Background(), "DELETE", path, nil); err != nil {
			w.t.Error(err)
		}
	})

	return id
}

// byProject makes an object of the project's.
func (w *operatorsWork) byProject(kind string, o testcloud.Object) string {
	w.t.Helper()

	b := testcloud.Batch{API: lab.Tenant}

	id := b.Create(w.t.Context(), kind, o)
	if b.Err != nil {
		w.t.Fatal(b.Err)
	}

	return id
}

// put makes a PUT request of a user.
func (w *operatorsWork) put(api *testcloud.API, path string, body testcloud.Object) {
	w.t.Helper()

	if _, err := api.Do(w.t.Context(), "PUT", "/v2.0/"+path, body); err != nil {
		w.t.Fatal(err)
	}
}

// interfaceOf adds or removes the interface of a router in the subnet of VMs.
func (w *operatorsWork) interfaceOf(router, change string) {
	w.t.Helper()

	path := "routers/" + router + "/" + change + "_router_interface"
	w.put(lab.Tenant, path, testcloud.Object{"subnet_id": w.subnet})
}

// kinds are the kinds of objects that a setup may make, in the order in which they can be deleted.
var kinds = []string{
	"trunks", "ports", "routers", "subnets", "networks", "subnetpools", "security-groups",
	"security-group-rules",
}

// all returns the project's objects of a kind.
func (w *operatorsWork) all(kind string) []testcloud.Object {
	w.t.Helper()

	path := "/v2.0/" + kind + "?project_id=" + lab.Project

	list, err := lab.Tenant.Do(context.Background(), "GET", path, nil)
	if err != nil {
		w.t.Fatal(err)
	}

	var out []testcloud.Object
	for _, o := range list[strings.ReplaceAll(kind, "-", "_")].([]any) {
		out = append(out, o.(testcloud.Object))
	}

	return out
}

// list returns a line for each object of the project.
func (w *operatorsWork) list() []string {
	w.t.Helper()

	var out []string

	for _, kind := range kinds {
		for _, o := range w.all(kind) {
			out = append(out, fmt.Sprintln(kind, o["id"], o["name"], o["description"],
				o["revision_number"]))
		}
	}

	slices.Sort(out)

	return out
}

// remove deletes the project's objects that are not in the list.
func (w *operatorsWork) remove(except []string) {
	w.t.Helper()

	known := strings.Join(except, "")
	tenant := func(method, path string, body any) {
		w.t.Helper()

		if _, err := lab.Tenant.Do(context.Background(), method, "/v2.0/"+path, body); err != nil {
			w.t.Error(err)
		}
	}

	for _, kind := range kinds[:len(kinds)-1] { // rules go with their group
		for _, o := range w.all(kind) {
			id, device := o["id"].(string), o["device_id"]
			switch {
			case kind == "ports" && o["device_owner"] == "network:router_interface":
				if !strings.Contains(known, id) {
					tenant("PUT", fmt.Sprintf("routers/%s/remove_router_interface", device),
						testcloud.Object{"port_id": id})
				}
			case strings.Contains(known, id):
			case o["device_owner"] == "network:distributed": // of metadata: goes with its network
			default:
				tenant("DELETE", kind+"/"+id, nil)
			}
		}
	}
}

// command returns master-init of the cluster "k8s" in the network of VMs.
func (w *operatorsWork) command(args ...string) *exec.Cmd {
	all := []string{
		"master-init", "--cloud", "k8s", "--clouds-file", lab.CloudsFile, "--vm-network", w.vms,
		"--cluster-name", "k8s", "--request-rate", "1000",
	}

	return exec.CommandContext(w.t.Context(), w.program, append(all, args...)...)
}

// run runs master-init to its end.
func (w *operatorsWork) run(args ...string) (stdout, stderr string, err error) {
	var out, progress bytes.Buffer

	cmd := w.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &progress
	err = cmd.Run()

	return out.String(), progress.String(), err
}

// mustRun returns what master-init prints.
func (w *operatorsWork) mustRun(args ...string) (stdout, stderr string) {
	w.t.Helper()

	stdout, stderr, err := w.run(args...)
	if err != nil {
		w.t.Fatalf("%v: %s", err, stderr)
	}

	return stdout, stderr
}

// settingsOf returns the values of the printed section by their keys.
func settingsOf(section string) map[string]string {
	values := map[string]string{}

	for line := range strings.Lines(section) {
		if key, value, is := strings.Cut(strings.TrimSpace(line), "="); is {
			values[key] = value
		}
	}

	return values
}

// same compares the project's objects with those before.
func (w *operatorsWork) same(before []string) {
	w.t.Helper()

	if diff := cmp.Diff(before, w.list()); diff != "" {
		w.t.Errorf("objects of the project changed (-before +after):\n%s", diff)
	}
}
