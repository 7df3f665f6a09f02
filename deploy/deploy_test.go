package deploy

import (
	"encoding/json"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// policies is an API that servers before Kubernetes 1.30 do not have.
const policies = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"

// TestUninstallKeepsRights: for an uninstallation the chart has the ConfigMap and the rights of
// the installation, and instead of what runs on the nodes, the objects that clean them. Open
// vSwitch stays until the release is deleted.
func TestUninstallKeepsRights(t *testing.T) {
	server := "-api-versions=" + policies
	for name, render := range map[string]func(*testing.T, ...string) map[string]any{"host": chart, "complete": complete} {
		want := render(t, server, member)
		maps.DeleteFunc(want, func(key string, _ any) bool { return ends(key) })

		for key, o := range render(t, server, member, "-set=uninstall=true", "-show-only=templates/uninstall.yaml") {
			if _, is := o.(*corev1.ConfigMap); is {
				t.Errorf("%s: the uninstallation has %s of its own, which replaces the installation's", name, key)
			}

			want[key] = o
		}

		if diff := cmp.Diff(want, render(t, server, member, "-set=uninstall=true")); diff != "" {
			t.Errorf("%s (-want +chart)\n%s", name, diff)
		}
	}
}

// TestOlderServersHaveNoPolicies: without the API of admission policies the chart is the same,
// without them and the setting that relies on them.
func TestOlderServersHaveNoPolicies(t *testing.T) {
	want, have := chart(t, "-api-versions="+policies), chart(t)
	before := len(want)
	maps.DeleteFunc(want, func(key string, _ any) bool { return strings.HasPrefix(key, "ValidatingAdmissionPolicy") })

	if before-len(want) != 6 {
		t.Errorf("%d objects of admission policies, want 6", before-len(want))
	}

	for _, objects := range []map[string]any{want, have} {
		delete(objects[configuration].(*corev1.ConfigMap).Data, trustSlices)

		for _, o := range objects { // the checksum of that configuration
			switch o := o.(type) {
			case *appsv1.DaemonSet:
				delete(o.Spec.Template.Annotations, checksum)
			case *appsv1.Deployment:
				delete(o.Spec.Template.Annotations, checksum)
			}
		}
	}

	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +chart)\n%s", diff)
	}
}

const (
	configuration = "ConfigMap ovn-ebpf/ovn-ebpf"
	trustSlices   = "TRUST_ENDPOINT_SLICES"
)

// TestTrustEndpointSlices_needsPolicy: the chart sets trust-endpoint-slices exactly when it has the
// policy which the setting relies on. An administrator's own value takes precedence.
func TestTrustEndpointSlices_needsPolicy(t *testing.T) {
	const none, policy = "-api-versions=", "-api-versions=" + policies
	for _, tc := range []struct{ server, value, want string }{
		{none, "", ""},
		{policy, "", "true"},
		{none, "true", "true"},
		{policy, "false", "false"},
		{policy, "true", "true"},
	} {
		for _, render := range []func(*testing.T, ...string) map[string]any{chart, complete} {
			objects := render(t, tc.server, member, "-set=config."+trustSlices+"="+tc.value)
			if got := objects[configuration].(*corev1.ConfigMap).Data[trustSlices]; got != tc.want {
				t.Errorf("%+v: %s is %q", tc, trustSlices, got)
			}

			for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
				if _, has := objects[kind+" /ovn-ebpf-endpoint-slices"]; has != (tc.server == policy) {
					t.Errorf("%+v: the chart has %s: %t", tc, kind, has)
				}
			}
		}
	}
}

// TestAgentSeesDatabases: the agent's container has the directory of Open vSwitch's database,
// whose disk it watches, and cannot write to it. Where the chart runs OVN's databases, theirs is
// the same.
func TestAgentSeesDatabases(t *testing.T) {
	for flags, want := range map[string]string{
		"-set=ovs.host=true,ovn.host=true": "/etc/openvswitch",
		"-set=ovn.host=true":               "/var/lib/ovn-ebpf",
		"-set=replicas=1":                  "/var/lib/ovn-ebpf",
		"-set=ovs.host=true":               "/var/lib/ovn-ebpf", // the certificate, and the databases on members
	} {
		pods := podSpecs(complete(t, member, flags))

		pod := pods["DaemonSet ovn-ebpf/ovn-ebpf-node"]
		if !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == want && m.ReadOnly }) {
			t.Errorf("%s: the agent has no %s", flags, want)
		}

		for _, key := range []string{"DaemonSet ovn-ebpf/ovn-ebpf-node", "DaemonSet ovn-ebpf/ovn-ebpf-ovs", "StatefulSet ovn-ebpf/ovn-ebpf-central"} {
			pod := pods[key]
			if pod != nil && !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil && v.HostPath.Path == want }) {
				t.Errorf("%s: %s has no %s", flags, key, want)
			}
		}
	}
}

// TestUninstallRemovesDatabases: also where only Open vSwitch is the node's own.
func TestUninstallRemovesDatabases(t *testing.T) {
	for flag, want := range map[string]bool{"-set=ovs.host=true": true, "-set=ovn.host=true": true, "-set=ovn.host=true,ovs.host=true": false} {
		pod := podSpecs(complete(t, member, "-set=uninstall=true", flag))["DaemonSet ovn-ebpf/ovn-ebpf-uninstall"]

		removes := slices.ContainsFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == "remove-ovs" })
		if removes != want {
			t.Errorf("%s: databases are removed: %t", flag, removes)
		}
	}
}

// TestBackup: where a schedule is given there is a CronJob, on the first member's node, and the
// databases' containers see what it writes.
func TestBackup(t *testing.T) {
	const job, set = "CronJob ovn-ebpf/ovn-ebpf-backup", "StatefulSet ovn-ebpf/ovn-ebpf-central"

	objects := complete(t, "-set=ovn.members.b=192.0.2.2", "-set=ovn.members.a=192.0.2.1", "-set=ovn.members.c=192.0.2.3", "-set=ovn.replicas=3", "-set=ovn.backup.schedule=30 2 * * *")

	pod := objects[job].(*batchv1.CronJob).Spec.JobTemplate.Spec.Template.Spec
	if got := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values; !slices.Equal(got, []string{"a"}) {
		t.Errorf("runs on %v", got)
	}

	if out, err := exec.Command(ovnkube(t), append(pod.Containers[0].Args, "--help")...).CombinedOutput(); err != nil {
		t.Errorf("ovnkube %v: %v: %s", pod.Containers[0].Args, err, out)
	}

	mounts := objects[set].(*appsv1.StatefulSet).Spec.Template.Spec.Containers[0].VolumeMounts
	if !slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/backup" && m.ReadOnly }) {
		t.Errorf("the database mounts %v", mounts)
	}

	if complete(t, "-set=ovn.members.a=192.0.2.1")[job] != nil {
		t.Error("a CronJob without a schedule")
	}
}

// TestVolume: with a size, each member's databases are on a claim of their own, and not on the
// node.
func TestVolume(t *testing.T) {
	const set = "StatefulSet ovn-ebpf/ovn-ebpf-central"

	s := complete(t, member, "-set=ovn.volume.size=2Gi", "-set=ovn.volume.storageClass=fast")[set].(*appsv1.StatefulSet)
	if len(s.Spec.VolumeClaimTemplates) != 1 {
		t.Fatalf("claims %v", s.Spec.VolumeClaimTemplates)
	}

	claim := s.Spec.VolumeClaimTemplates[0]
	if got := claim.Spec.Resources.Requests.Storage().String(); got != "2Gi" || *claim.Spec.StorageClassName != "fast" {
		t.Errorf("claim of %s, class %s", got, *claim.Spec.StorageClassName)
	}

	isData := func(v corev1.Volume) bool { return v.Name == "data" }
	if slices.ContainsFunc(s.Spec.Template.Spec.Volumes, isData) || claim.Name != "data" {
		t.Errorf("the claim %q and the volumes %v", claim.Name, s.Spec.Template.Spec.Volumes)
	}

	s = complete(t, member)[set].(*appsv1.StatefulSet)
	if len(s.Spec.VolumeClaimTemplates) != 0 || !slices.ContainsFunc(s.Spec.Template.Spec.Volumes, isData) {
		t.Errorf("without a size: claims %v, volumes %v", s.Spec.VolumeClaimTemplates, s.Spec.Template.Spec.Volumes)
	}
}

// ends reports whether the first step of an uninstallation deletes an object: everything that runs,
// except Open vSwitch, and what only OVN's databases need.
func ends(key string) bool {
	kind, _, _ := strings.Cut(key, " ")
	name := key[strings.LastIndex(key, "/")+1:]

	switch kind {
	case "Deployment", "StatefulSet", "Service", "PodDisruptionBudget":
		return true
	case "DaemonSet":
		return name != "ovn-ebpf-ovs"
	}

	return slices.Contains([]string{"ovn-ebpf-certificates", "ovn-ebpf-central", "ovn-ebpf-ovn-controller"}, name)
}

// TestMembers: databases run on the given nodes, and clients know all of them.
func TestMembers(t *testing.T) {
	objects := complete(t, "-set=ovn.members.b=192.0.2.2", "-set=ovn.members.a=192.0.2.1", "-set=ovn.members.c=2001:db8::3", "-set=ovn.replicas=3")

	config := objects["ConfigMap ovn-ebpf/ovn-ebpf"].(*corev1.ConfigMap).Data
	for key, want := range map[string]string{
		"OVN_MEMBERS":     "a=192.0.2.1,b=192.0.2.2,c=2001:db8::3",
		"SB_READ_ADDRESS": "ssl:192.0.2.1:6645,ssl:192.0.2.2:6645,ssl:[2001:db8::3]:6645",
		"NB_ADDRESS":      "ssl:192.0.2.1:6641,ssl:192.0.2.2:6641,ssl:[2001:db8::3]:6641", "SB_ADDRESS": "ssl:192.0.2.1:6642,ssl:192.0.2.2:6642,ssl:[2001:db8::3]:6642",
	} {
		if config[key] != want {
			t.Errorf("%s is %q, want %q", key, config[key], want)
		}
	}

	set := objects["StatefulSet ovn-ebpf/ovn-ebpf-central"].(*appsv1.StatefulSet)

	var nodes []string
	for _, term := range set.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		nodes = append(nodes, term.MatchFields[0].Values...)
	}

	if *set.Spec.Replicas != 3 || !slices.Equal(nodes, []string{"a", "b", "c"}) {
		t.Errorf("%d replicas on %v", *set.Spec.Replicas, nodes)
	}

	if _, err := render(t, "helm/ovn-ebpf"); err == nil || !strings.Contains(err.Error(), "ovn.members.NODE=ADDRESS") {
		t.Errorf("without members: %v", err)
	}

	if _, err := render(t, "-set=ovn.replicas=1", "-set=ovn.members.a=192.0.2.1", "-set=ovn.members.b=192.0.2.2", "helm/ovn-ebpf"); err == nil || !strings.Contains(err.Error(), "2 members") {
		t.Errorf("with two members for one replica: %v", err)
	}
	// The values of a release of before, whose databases are others'.
	if _, err := render(t, "-set=ovn.members.a=192.0.2.1", "-set=config.NB_ADDRESS=ssl:192.0.2.9:6641", "helm/ovn-ebpf"); err == nil || !strings.Contains(err.Error(), "ovn.host=true") {
		t.Errorf("with databases of others: %v", err)
	}
}

// TestOlderServers: to one that does not know the field for AppArmor the chart gives the
// annotation.
func TestOlderServers(t *testing.T) {
	for _, flags := range [][]string{nil, {"-set=uninstall=true"}} {
		for key, o := range chart(t, append(flags, "-kube-version=v1.29.3")...) {
			ds, is := o.(*appsv1.DaemonSet)
			if !is {
				continue
			}

			for _, c := range slices.Concat(ds.Spec.Template.Spec.InitContainers, ds.Spec.Template.Spec.Containers) {
				unconfined := len(c.Args) > 0 && c.Args[0] == "agent"

				annotation := ds.Spec.Template.Annotations["container.apparmor.security.beta.kubernetes.io/"+c.Name] == "unconfined"
				if c.SecurityContext.AppArmorProfile != nil || unconfined != annotation {
					t.Errorf("%s %s: AppArmor profile %v, annotation %t, want it %t", key, c.Name, c.SecurityContext.AppArmorProfile, annotation, unconfined)
				}
			}
		}
	}
}

const checksum = "checksum/config"

// TestConfigurationRestarts: a changed setting is another pod template, so that it takes effect.
func TestConfigurationRestarts(t *testing.T) {
	sums := func(flags ...string) map[string]string {
		out := map[string]string{}

		for key, o := range chart(t, flags...) {
			switch o := o.(type) {
			case *appsv1.DaemonSet:
				out[key] = o.Spec.Template.Annotations[checksum]
			case *appsv1.Deployment:
				out[key] = o.Spec.Template.Annotations[checksum]
			}
		}

		return out
	}

	was, same, other := sums(), sums("-set=replicas=3"), sums("-set=config.MTU=1400")
	if len(was) != 2 {
		t.Fatalf("%v", was)
	}

	for key := range was {
		if was[key] == "" || was[key] != same[key] || was[key] == other[key] {
			t.Errorf("%s: checksum %q, of another number of replicas %q, of another MTU %q", key, was[key], same[key], other[key])
		}
	}
}

// TestProbesFollowTheBindAddress: the probes ask where the program serves.
func TestProbesFollowTheBindAddress(t *testing.T) {
	for address, want := range map[string]string{
		"": "127.0.0.1:9410", "0.0.0.0:9500": "127.0.0.1:9500", "192.0.2.7:9500": "192.0.2.7:9500", ":9500": "127.0.0.1:9500", "[::]:9500": "[::1]:9500", "[2001:db8::7]:9500": "[2001:db8::7]:9500",
	} {
		probed(t, address, want, chart(t, "-set-string=config.AGENT_METRICS_BIND_ADDRESS="+address))
	}
}

func probed(t *testing.T, address, want string, objects map[string]any) {
	t.Helper()

	agent := podSpecs(objects)["DaemonSet ovn-ebpf/ovn-ebpf-node"].Containers[0]
	for _, p := range []*corev1.Probe{agent.LivenessProbe, agent.ReadinessProbe} {
		if got := net.JoinHostPort(p.HTTPGet.Host, p.HTTPGet.Port.String()); got != want {
			t.Errorf("bind address %q: %s is asked at %s, want %s", address, p.HTTPGet.Path, got, want)
		}
	}

	if other := podSpecs(objects)["Deployment ovn-ebpf/ovn-ebpf-controller"].Containers[0].ReadinessProbe.HTTPGet; other.Port.IntValue() != 9409 || other.Path != "/readyz" {
		t.Errorf("the controller is asked at %v", other)
	}
}

// ovnkube is the program, with the plugin beside it.
func ovnkube(t *testing.T) string {
	t.Helper()

	bin := os.Getenv("BIN_DIR")
	if bin == "" {
		bin = t.TempDir()
		if out, err := exec.Command("go", "build", "-o", bin, "../cmd/ovnkube", "../cmd/ovn-k8s-cni-overlay").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}

	return filepath.Join(bin, "ovnkube")
}

// TestPrograms: every container runs a command that exists, with settings that exist. Every mount
// has its volume, and every volume is mounted.
func TestPrograms(t *testing.T) {
	bin := filepath.Dir(ovnkube(t))

	known := settings(t)
	for _, objects := range []map[string]any{chart(t), chart(t, "-set=uninstall=true"), complete(t, member), complete(t, member, "-set=uninstall=true")} {
		for key, pod := range podSpecs(objects) {
			volumes := map[string]bool{}
			for _, v := range pod.Volumes {
				volumes[v.Name] = false
			}

			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				for _, m := range c.VolumeMounts {
					if _, ok := volumes[m.Name]; !ok {
						t.Errorf("%s %s: no volume %s", key, c.Name, m.Name)
					}

					volumes[m.Name] = true
				}

				set := map[string]bool{}
				for _, e := range c.Env {
					set["$("+e.Name+")"] = true
					if _, is := known[e.Name]; strings.HasPrefix(e.Name, "OVNKUBE_") && !is {
						t.Errorf("%s %s: there is no setting %s", key, c.Name, e.Name)
					}
				}

				if len(c.Command) > 0 {
					if c.Command[0] != "/usr/bin/ovn-k8s-cni-overlay" {
						t.Errorf("%s %s: command %v", key, c.Name, c.Command)
					}

					continue
				}

				args := slices.DeleteFunc(slices.Clone(c.Args), func(arg string) bool { return set[arg] })
				if out, err := exec.Command(filepath.Join(bin, "ovnkube"), append(args, "--help")...).CombinedOutput(); err != nil {
					t.Errorf("%s %s: ovnkube %v: %v: %s", key, c.Name, c.Args, err, out)
				}
			}

			for name, mounted := range volumes {
				if !mounted {
					t.Errorf("%s: nothing mounts %s", key, name)
				}
			}
		}
	}
}

// settings returns the programs' defaults, by the variable that gives another value.
func settings(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.Command(ovnkube(t), "config", "show", "--json", "--ovsdb", "unix:"+t.TempDir()+"/none")
	cmd.Env = []string{} // no variable of this test's own

	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	var shown []struct{ Name, Value string }
	if err := json.Unmarshal(out, &shown); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	values := map[string]string{}
	for _, s := range shown {
		values["OVNKUBE_"+strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))] = s.Value
	}

	if len(values) < 30 {
		t.Fatalf("%d settings: %s", len(values), out)
	}

	return values
}

// TestDefaults: each key of the configuration is given to a program. Its value is that program's
// own default, or none: then what a node is told (external_ids) holds.
func TestDefaults(t *testing.T) {
	objects, defaults, used := chart(t), settings(t), map[string]bool{}

	config := objects["ConfigMap ovn-ebpf/ovn-ebpf"].(*corev1.ConfigMap).Data
	for key, pod := range podSpecs(objects) {
		for _, e := range pod.Containers[0].Env {
			if e.ValueFrom == nil || e.ValueFrom.ConfigMapKeyRef == nil {
				continue
			}

			from := e.ValueFrom.ConfigMapKeyRef.Key
			used[from] = true

			value, has := config[from]
			switch want, is := defaults[e.Name]; {
			case !is && from != e.Name: // KUBERNETES_SERVICE_HOST and _PORT are no settings
				t.Errorf("%s: %s of %s", key, e.Name, from)
			case !is && has:
				t.Errorf("%s has a value: the variable that kubelet sets would be lost", from)
			case is && !has:
				t.Errorf("%s: the configuration has no %s", key, from)
			case value != "" && value != want:
				t.Errorf("%s is %q, the default of %s is %q", from, value, e.Name, want)
			}
		}
	}

	for name := range config {
		if !used[name] {
			t.Errorf("no program gets %s", name)
		}
	}

	for _, name := range []string{"GATEWAY_INTERFACE", "GATEWAY_LAYOUT", "GATEWAY_MODE", "MTU"} {
		if config[name] != "" {
			t.Errorf("%s is %q, which overrides what nodes are told each by itself", name, config[name])
		}
	}
}

// apply creates the namespace and the complete chart, and returns its objects.
func apply(t *testing.T, client kubernetes.Interface) map[string]any {
	t.Helper()
	strict, objects := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}, complete(t, "-api-versions="+policies, member)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ovn-ebpf", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}}
	if err := create(t.Context(), client, namespace, strict); err != nil {
		t.Fatal(err)
	}

	for key, object := range objects {
		if err := create(t.Context(), client, object, strict); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}

	return objects
}

// TestRights gives everything to a real API server and asks it what the
// programs may do: what they call, and nothing else that is asked for here.
func TestRights(t *testing.T) {
	server := kubetest.Start(t)

	client, err := kubernetes.NewForConfig(server.RestConfig())
	if err != nil {
		t.Fatal(err)
	}

	ctx, objects := t.Context(), apply(t, client)

	type right struct {
		who, verb, group, resource, namespace string
		want                                  bool
	}

	var watched []right

	for _, r := range plan.Resources() {
		what := r.GroupResource()
		watched = append(watched, right{"controller", "list", what.Group, what.Resource, "", true}, right{"controller", "watch", what.Group, what.Resource, "", true})
	}

	for _, tc := range append(watched, []right{
		{"controller", "patch", "", "pods", "any", true},
		{"controller", "patch", "", "nodes", "", true},
		{"controller", "patch", "", "nodes/status", "", true},
		{"controller", "update", "", "nodes/status", "", false},
		{"controller", "update", "coordination.k8s.io", "leases", "ovn-ebpf", true},
		{"controller", "create", "", "events", "any", true},
		{"controller", "update", "coordination.k8s.io", "leases", "kube-system", false},
		{"controller", "delete", "", "pods", "any", false},
		{"controller", "list", "", "secrets", "", false},
		{"controller", "write", "ovn-ebpf.io", "podaddresses", "", true},
		{"node", "write", "ovn-ebpf.io", "podaddresses", "", false},
		{"controller", "create", "", "pods", "any", false},
		{"node", "list", "", "pods", "", true},
		{"node", "get", "", "pods", "any", true},
		{"node", "watch", "", "nodes", "", true},
		{"node", "patch", "", "nodes", "", true},
		{"node", "patch", "", "nodes/status", "", false},
		{"node", "watch", "", "services", "", true},
		{"node", "watch", "discovery.k8s.io", "endpointslices", "", true},
		{"node", "create", "", "events", "any", true},
		{"node", "patch", "", "pods", "any", false},
		{"node", "update", "", "nodes", "", false},
		{"node", "list", "", "secrets", "", false},
		{"node", "get", "", "configmaps", "ovn-ebpf", false},
		{"certificates", "create", "", "secrets", "ovn-ebpf", true},
		{"certificates", "create", "", "secrets", "kube-system", false},
		{"certificates", "get", "", "secrets", "ovn-ebpf", false}, // of any name
		{"certificates", "list", "", "secrets", "ovn-ebpf", false},
		{"certificates", "delete", "", "secrets", "ovn-ebpf", false},
		{"certificates", "watch", "certificates.k8s.io", "certificatesigningrequests", "", true},
		{"certificates", "update", "certificates.k8s.io", "certificatesigningrequests/approval", "", true},
		{"certificates", "update", "certificates.k8s.io", "certificatesigningrequests/status", "", true},
		{"certificates", "approve", "certificates.k8s.io", "signers", "", false}, // of any name
		{"ovn-controller", "create", "certificates.k8s.io", "certificatesigningrequests", "", true},
		{"ovn-controller", "update", "certificates.k8s.io", "certificatesigningrequests/approval", "", false},
		{"ovn-controller", "list", "", "secrets", "ovn-ebpf", false},
		{"ovn-controller", "list", "", "nodes", "", false},
		{"central", "watch", "", "nodes", "", true},
		{"central", "patch", "", "nodes", "", false},
		{"central", "list", "", "secrets", "ovn-ebpf", false},
	}...) {
		resource, subresource, _ := strings.Cut(tc.resource, "/")

		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:ovn-ebpf:ovn-ebpf-" + tc.who,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: tc.verb, Group: tc.group, Resource: resource, Subresource: subresource, Namespace: tc.namespace},
		}}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed != tc.want {
			t.Errorf("%s may %s %s in %q: %t, error %v", tc.who, tc.verb, tc.resource, tc.namespace, review.Status.Allowed, err)
		}
	}

	for key, o := range objects {
		if role, ok := o.(*rbacv1.ClusterRole); ok {
			for _, r := range role.Rules {
				if slices.Contains(slices.Concat(r.Verbs, r.Resources, r.APIGroups), "*") {
					t.Errorf("%s: a rule with a star", key)
				}
			}
		}
	}
}

// TestValues: Helm refuses values that are misspelt or that the programs would refuse.
func TestValues(t *testing.T) {
	for _, wrong := range []string{
		"imagee=x", "config.NB_ADDR=tcp:192.0.2.1:6641", "config.GATEWAY_LAYOUT=bridge", "config.GATEWAY_MODE=disabled", "config.MTU=65536", "config.MTU=big", "config.MTU=100", "config.SNAT_PORT_RANGE=9-1", "config.SERVICE_NODE_PORT_RANGE=30000-70000", "config.CNI_EXCLUSIVE=maybe",
		"config.LOG_LEVEL=11", "config.SNAT_PORT_RANGE=50000", "config.CLUSTER_SUBNETS=10.244.0.0", "config.SB_ADDRESS=192.0.2.1", "replicas=0", "replicas=two",
		"config.AGENT_METRICS_BIND_ADDRESS=9410", "uninstall=1", "config.KUBERNETES_SERVICE_HOST=", "config.GATEWAY_V4_JOIN_SUBNET=fd98::/64",
		"ovn.replicas=2", "ovn.members.node1=node1", "ovs.datapath=kernel", "ovs.hosts=true", "ovn.volume.size=much",
		"config.CLUSTER_SUBNETS=10.96.0.0/12/24", "config.SERVICE_CIDRS=10.244.128.0/20", "config.GATEWAY_V4_JOIN_SUBNET=10.244.1.0/24", // they overlap
	} {
		name, _, _ := strings.Cut(wrong, "=")
		if _, err := render(t, "-set="+wrong, "helm/ovn-ebpf"); err == nil || !strings.Contains(err.Error(), name[strings.LastIndex(name, ".")+1:]) {
			t.Errorf("%s: %v", wrong, err)
		}
	}

	chart(t, `-set=config.CLUSTER_SUBNETS=10.97.0.0/16/24\,10.112.0.0/12/24\,fd00:1::/48/64`) // side by side
	chart(t, "-set=config.NB_ADDRESS=ssl:192.0.2.1:6641", "-set=config.MTU=1400", "-set=config.CNI_EXCLUSIVE=true", "-set=config.GATEWAY_LAYOUT=bridged", "-set=config.LOG_LEVEL=5",
		"-set=config.KUBERNETES_SERVICE_HOST=192.0.2.1", "-set=config.KUBERNETES_SERVICE_PORT=6443", "-set=config.GATEWAY_INTERFACE=bond0.100", "-set=replicas=3", "-set=controllerUser=65532")
}
