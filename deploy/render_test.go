package deploy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"text/template"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// kinds are the API's types of what the manifests have.
var kinds = map[string]func() any{
	"v1 Namespace":                                                     func() any { return &corev1.Namespace{} },
	"v1 ConfigMap":                                                     func() any { return &corev1.ConfigMap{} },
	"v1 ServiceAccount":                                                func() any { return &corev1.ServiceAccount{} },
	"apps/v1 DaemonSet":                                                func() any { return &appsv1.DaemonSet{} },
	"apps/v1 Deployment":                                               func() any { return &appsv1.Deployment{} },
	"rbac.authorization.k8s.io/v1 Role":                                func() any { return &rbacv1.Role{} },
	"rbac.authorization.k8s.io/v1 RoleBinding":                         func() any { return &rbacv1.RoleBinding{} },
	"rbac.authorization.k8s.io/v1 ClusterRole":                         func() any { return &rbacv1.ClusterRole{} },
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding":                  func() any { return &rbacv1.ClusterRoleBinding{} },
	"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy":        func() any { return &admissionv1.ValidatingAdmissionPolicy{} },
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

// kustomized does for a directory what its kustomization.yaml asks for: it has
// resources and one image's tag.
func kustomized(t *testing.T, dir string) map[string]any {
	t.Helper()
	var k struct {
		APIVersion, Kind, Namespace string
		Resources                   []string
		Images                      []struct{ Name, NewTag string }
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(dir, "kustomization.yaml")), &k); err != nil {
		t.Fatal(err)
	}
	if k.Kind != "Kustomization" || len(k.Images) != 1 {
		t.Fatalf("%s: %+v", dir, k)
	}
	out := map[string]any{}
	for _, r := range k.Resources {
		for key, object := range decode(t, r, read(t, filepath.Join(dir, r))) {
			out[key] = object
		}
	}
	for _, p := range podSpecs(out) {
		for _, containers := range [][]corev1.Container{p.InitContainers, p.Containers} {
			for i := range containers {
				if containers[i].Image != k.Images[0].Name {
					t.Errorf("%s: image %s has no tag in the kustomization", dir, containers[i].Image)
				}
				containers[i].Image += ":" + k.Images[0].NewTag
			}
		}
	}
	return out
}

// versions are what an API server has, as Helm tells templates.
type versions []string

func (v versions) Has(version string) bool { return slices.Contains(v, version) }

// chart renders the Helm chart with its values, in namespace ovn-ebpf, for an API server that
// has these versions. It knows of Helm's language what the templates use.
func chart(t *testing.T, has ...string) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.UnmarshalStrict(read(t, "helm/ovn-ebpf/values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("helm/ovn-ebpf/templates/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no templates", err)
	}
	out := map[string]any{}
	for _, f := range files {
		tmpl, err := template.New(f).Option("missingkey=error").Funcs(template.FuncMap{
			"quote": func(v any) string { return strconv.Quote(fmt.Sprint(v)) },
		}).Parse(string(read(t, f)))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := tmpl.Execute(&b, map[string]any{"Values": values, "Release": map[string]any{"Namespace": "ovn-ebpf"}, "Capabilities": map[string]any{"APIVersions": versions(has)}}); err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(b.Bytes())) == 0 {
			continue
		}
		for key, object := range decode(t, f, b.Bytes()) {
			out[key] = object
		}
	}
	return out
}

func podSpecs(objects map[string]any) map[string]*corev1.PodSpec {
	out := map[string]*corev1.PodSpec{}
	for key, o := range objects {
		switch o := o.(type) {
		case *appsv1.DaemonSet:
			out[key] = &o.Spec.Template.Spec
		case *appsv1.Deployment:
			out[key] = &o.Spec.Template.Spec
		}
	}
	return out
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
