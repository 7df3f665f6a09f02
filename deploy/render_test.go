package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// kinds are the API's types of what the manifests have.
var kinds = map[string]func() any{
	"v1 Namespace":                                              func() any { return &corev1.Namespace{} },
	"v1 ConfigMap":                                              func() any { return &corev1.ConfigMap{} },
	"v1 ServiceAccount":                                         func() any { return &corev1.ServiceAccount{} },
	"batch/v1 CronJob":                                          func() any { return &batchv1.CronJob{} },
	"v1 Service":                                                func() any { return &corev1.Service{} },
	"apps/v1 StatefulSet":                                       func() any { return &appsv1.StatefulSet{} },
	"policy/v1 PodDisruptionBudget":                             func() any { return &policyv1.PodDisruptionBudget{} },
	"apps/v1 DaemonSet":                                         func() any { return &appsv1.DaemonSet{} },
	"apps/v1 Deployment":                                        func() any { return &appsv1.Deployment{} },
	"rbac.authorization.k8s.io/v1 Role":                         func() any { return &rbacv1.Role{} },
	"rbac.authorization.k8s.io/v1 RoleBinding":                  func() any { return &rbacv1.RoleBinding{} },
	"rbac.authorization.k8s.io/v1 ClusterRole":                  func() any { return &rbacv1.ClusterRole{} },
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding":           func() any { return &rbacv1.ClusterRoleBinding{} },
	"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy": func() any { return &admissionv1.ValidatingAdmissionPolicy{} },
	"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding": func() any { return &admissionv1.ValidatingAdmissionPolicyBinding{} },
}

// decode reads a file of manifests. A field that the API does not know, or one
// that is there twice, is an error.
func decode(t *testing.T, name string, content []byte) map[string]any {
	t.Helper()

	out := map[string]any{}

	for i, doc := range bytes.Split(content, []byte("\n---\n")) {
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace, Name string }
		}
		if err := yaml.Unmarshal(doc, &head); err != nil {
			t.Fatalf("%s, document %d: %v", name, i, err)
		}

		build := kinds[head.APIVersion+" "+head.Kind]
		if build == nil {
			t.Fatalf("%s, document %d: %s %s is not known here", name, i, head.APIVersion, head.Kind)
		}

		object := build()
		if err := yaml.UnmarshalStrict(doc, object); err != nil {
			t.Fatalf("%s, %s %s: %v", name, head.Kind, head.Metadata.Name, err)
		}

		out[head.Kind+" "+head.Metadata.Namespace+"/"+head.Metadata.Name] = object
	}

	return out
}

// program builds ../test/render once, which uses Helm's library.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "render")
	if err != nil {
		return "", err
	}

	cmd := exec.Command("go", "build", "-o", dir, ".")

	cmd.Dir = "../test/render"
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build test/render: %w: %s", err, out)
	}

	return filepath.Join(dir, "render"), nil
})

func TestMain(m *testing.M) {
	os.Exit(tether.Run(func() int {
		code := m.Run()

		if path, err := program(); err == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}

		return code
	}))
}

// render returns what Helm makes of a chart.
func render(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()

	path, err := program()
	if err != nil {
		t.Fatal(err)
	}

	var stdout, stderr bytes.Buffer

	cmd := exec.Command(path, args...)

	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}

	return bytes.TrimPrefix(stdout.Bytes(), []byte("---\n")), nil
}

// member is the flag for one member of OVN's databases, which Helm cannot look up here.
const member = "-set=ovn.members.node1=192.0.2.1"

// chart returns the chart's objects where others run OVN and Open vSwitch (ovn.host, ovs.host),
// with Helm's flags.
func chart(t *testing.T, flags ...string) map[string]any {
	t.Helper()
	return complete(t, append([]string{"-set=ovn.host=true", "-set=ovs.host=true"}, flags...)...)
}

// complete returns the chart's objects, with Helm's flags.
func complete(t *testing.T, flags ...string) map[string]any {
	t.Helper()

	out, err := render(t, append(slices.Clone(flags), "helm/ovn-ebpf")...)
	if err != nil {
		t.Fatal(err)
	}

	return decode(t, "helm/ovn-ebpf", out)
}

func podSpecs(objects map[string]any) map[string]*corev1.PodSpec {
	out := map[string]*corev1.PodSpec{}

	for key, o := range objects {
		switch o := o.(type) {
		case *appsv1.DaemonSet:
			out[key] = &o.Spec.Template.Spec
		case *appsv1.StatefulSet:
			out[key] = &o.Spec.Template.Spec
		case *appsv1.Deployment:
			out[key] = &o.Spec.Template.Spec
		}
	}

	return out
}
