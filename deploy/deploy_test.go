package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/test/kube/kubetest"
)

// policies is the API of which an older server has nothing, nor the chart then.
const policies = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"

// TestSame: the chart's defaults are the kustomize base, but for the namespace,
// which Helm is told.
func TestSame(t *testing.T) {
	base, helm, older := kustomized(t, "base"), chart(t, policies), chart(t)
	delete(base, "Namespace /ovn-ebpf")
	if diff := cmp.Diff(base, helm); diff != "" {
		t.Errorf("(-base +chart)\n%s", diff)
	}
	maps.DeleteFunc(base, func(key string, _ any) bool { return strings.HasPrefix(key, "ValidatingAdmissionPolicy") })
	if diff := cmp.Diff(base, older); diff != "" {
		t.Errorf("without admission policies (-base +chart)\n%s", diff)
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

// TestPrograms: the flags are the programs', each variable is one that is set,
// each mount has its volume, and nothing needs a shell.
func TestPrograms(t *testing.T) {
	bin := filepath.Dir(ovnkube(t))
	variable, flag := regexp.MustCompile(`\$\((\w+)\)`), regexp.MustCompile(`^--([a-z0-9-]+)(=|$)`)
	for _, dir := range []string{"base", "uninstall"} {
		objects := kustomized(t, dir)
		config := objects["ConfigMap ovn-ebpf/ovn-ebpf"].(*corev1.ConfigMap).Data
		used := map[string]bool{}
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
					set[e.Name] = true
				}
				if len(c.EnvFrom) > 0 {
					for name := range config {
						set[name] = true
					}
				}
				for _, arg := range slices.Concat(c.Command, c.Args) {
					for _, m := range variable.FindAllStringSubmatch(arg, -1) {
						used[m[1]] = true
						if !set[m[1]] {
							t.Errorf("%s %s: nobody sets %s", key, c.Name, m[1])
						}
					}
				}
				if len(c.Command) > 0 {
					plugin := []string{"/usr/bin/ovn-k8s-cni-overlay"}
					if !slices.Equal(c.Command[:1], plugin) {
						t.Errorf("%s %s: command %v", key, c.Name, c.Command)
					}
					continue
				}
				help, err := exec.Command(filepath.Join(bin, "ovnkube"), c.Args[0], "--help").Output()
				if err != nil {
					t.Fatal(err)
				}
				for _, arg := range c.Args[1:] {
					m := flag.FindStringSubmatch(arg)
					if m == nil || !regexp.MustCompile(`(?m)^\s+-`+regexp.QuoteMeta(m[1])+`\b`).Match(help) {
						t.Errorf("%s %s: ovnkube %s has no flag %s", key, c.Name, c.Args[0], arg)
					}
				}
			}
			for name, mounted := range volumes {
				if !mounted {
					t.Errorf("%s: nobody mounts %s", key, name)
				}
			}
		}
		for name := range config {
			if !used[name] && dir == "base" {
				t.Errorf("nobody uses %s", name)
			}
		}
	}
}

// TestDefaults: the configuration's values are the programs' own defaults, so
// that whoever leaves one out gets the same.
func TestDefaults(t *testing.T) {
	config := kustomized(t, "base")["ConfigMap ovn-ebpf/ovn-ebpf"].(*corev1.ConfigMap).Data
	for name, want := range map[string]string{
		"CLUSTER_SUBNETS": "10.244.0.0/16/24", "SERVICE_CIDRS": "10.96.0.0/16", "GATEWAY_V4_JOIN_SUBNET": "100.64.0.0/16", "GATEWAY_V6_JOIN_SUBNET": "fd98::/64", "SNAT_PORT_RANGE": "49152-65535",
		"GATEWAY_LAYOUT": "direct", "GATEWAY_MODE": "shared", "MTU": "0", "LOG_LEVEL": "4", "GATEWAY_INTERFACE": "",
	} {
		if config[name] != want {
			t.Errorf("%s is %q, want %q", name, config[name], want)
		}
	}
}

// apply creates everything of the base, and returns it.
func apply(t *testing.T, client kubernetes.Interface) map[string]any {
	t.Helper()
	strict, objects := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}, kustomized(t, "base")
	for _, kind := range []string{"Namespace", ""} { // the namespace first
		for key, object := range objects {
			if strings.HasPrefix(key, "Namespace") != (kind == "Namespace") {
				continue
			}
			if err := create(t.Context(), client, object, strict); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
	return objects
}

// TestRights gives everything to a real API server and asks it what the two
// programs may do: what they call, and nothing else that is asked for here.
func TestRights(t *testing.T) {
	server := kubetest.Start(t)
	client, err := kubernetes.NewForConfig(server.RestConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, objects := t.Context(), apply(t, client)
	for _, tc := range []struct {
		who, verb, group, resource, namespace string
		want                                  bool
	}{
		{"controller", "list", "", "pods", "", true},
		{"controller", "watch", "networking.k8s.io", "networkpolicies", "", true},
		{"controller", "watch", "discovery.k8s.io", "endpointslices", "", true},
		{"controller", "watch", "", "namespaces", "", true},
		{"controller", "patch", "", "pods", "any", true},
		{"controller", "patch", "", "nodes", "", true},
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
		{"node", "watch", "", "services", "", true},
		{"node", "watch", "discovery.k8s.io", "endpointslices", "", true},
		{"node", "create", "", "events", "any", true},
		{"node", "patch", "", "pods", "any", false},
		{"node", "update", "", "nodes", "", false},
		{"node", "list", "", "secrets", "", false},
		{"node", "get", "", "configmaps", "ovn-ebpf", false},
	} {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:ovn-ebpf:ovn-ebpf-" + tc.who,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: tc.verb, Group: tc.group, Resource: tc.resource, Namespace: tc.namespace},
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
