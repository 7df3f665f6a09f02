package deploy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	discovery "k8s.io/client-go/kubernetes/typed/discovery/v1"
)

// controlPlane is the manager of EndpointSlices that the control plane makes.
const controlPlane = "endpointslice-controller.k8s.io"

const kubeSystem = "system:serviceaccount:kube-system:"

func slice(name, manager string) *discoveryv1.EndpointSlice {
	labels := map[string]string{discoveryv1.LabelServiceName: "web"}
	if manager != "" {
		labels[discoveryv1.LabelManagedBy] = manager
	}

	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
		Ports:     []discoveryv1.EndpointPort{{Name: new("ssh"), Port: new(int32(22))}},
	}
}

func (g *guarded) slices(user string) discovery.EndpointSliceInterface {
	return g.as(user).DiscoveryV1().EndpointSlices("default")
}

// checkSlices writes EndpointSlices as a tenant, as the control plane, and as others.
func (g *guarded) checkSlices() {
	g.t.Helper()
	g.grant("system:kube-controller-manager", "system:controller:endpointslice-controller")
	g.grant("copier", "system:controller:endpointslice-controller")
	_, err := g.admin.RbacV1().ClusterRoles().Create(g.t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "endpoint-slices"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"ovn-ebpf.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"write"}}},
	}, metav1.CreateOptions{})
	g.must(err)

	if err := g.writeAll("copier", "before"); !apierrors.IsForbidden(err) {
		g.t.Errorf("without the right: %v", err)
	}

	g.grant("copier", "endpoint-slices")

	for name, user := range map[string]string{
		"account": kubeSystem + "endpointslice-controller", "manager": "system:kube-controller-manager", "granted": "copier",
	} {
		if err := g.writeAll(user, name); err != nil {
			g.t.Errorf("%s: %v", user, err)
		}
	}

	g.checkTenantSlices("account")
	g.checkCollector("account")
}

// grant binds a user to a ClusterRole.
func (g *guarded) grant(user, role string) {
	g.t.Helper()
	_, err := g.admin.RbacV1().ClusterRoleBindings().Create(g.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	g.must(err)
}

// writeAll creates and changes a slice of the control plane.
func (g *guarded) writeAll(user, name string) error {
	client := g.slices(user)

	s, err := client.Create(g.t.Context(), slice(name, controlPlane), metav1.CreateOptions{})
	if err != nil {
		return err
	}

	s.Endpoints[0].Addresses[0] = "192.0.2.9"
	_, err = client.Update(g.t.Context(), s, metav1.UpdateOptions{})

	return err
}

// checkTenantSlices tries every way to write the control plane's label, or a slice that has it.
func (g *guarded) checkTenantSlices(made string) {
	g.t.Helper()
	ctx, client := g.t.Context(), g.slices("tenant")
	before, err := client.Get(ctx, made, metav1.GetOptions{})
	g.must(err)

	for _, own := range []*discoveryv1.EndpointSlice{slice("own", ""), slice("copied", "tenant")} {
		if _, err := client.Create(ctx, own, metav1.CreateOptions{}); err != nil {
			g.t.Errorf("a tenant's own slice: %v", err)
		}
	}

	create := func(name string) error {
		_, err := client.Create(ctx, slice(name, controlPlane), metav1.CreateOptions{})
		return err
	}
	update := func(name string, change func(*discoveryv1.EndpointSlice)) error {
		s, err := client.Get(ctx, name, metav1.GetOptions{})
		g.must(err)
		change(s)
		_, err = client.Update(ctx, s, metav1.UpdateOptions{})

		return err
	}
	patch := func(name string, kind types.PatchType, body any) error {
		text, err := json.Marshal(body)
		g.must(err)

		options := metav1.PatchOptions{FieldManager: "tenant"}
		if kind == types.ApplyPatchType {
			options.Force = new(true)
		}

		_, err = client.Patch(ctx, name, kind, text, options)

		return err
	}
	applied := func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		s.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
		return s
	}
	label := func(value any) any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{discoveryv1.LabelManagedBy: value}}}
	}
	forge := func(s *discoveryv1.EndpointSlice) {
		metav1.SetMetaDataLabel(&s.ObjectMeta, discoveryv1.LabelManagedBy, controlPlane)
	}

	refused := map[string]error{
		"create":                      create("forged"),
		"create by apply":             patch("forged", types.ApplyPatchType, applied(slice("forged", controlPlane))),
		"label its own":               update("own", forge),
		"label its own, other value":  update("copied", forge),
		"patch its own":               patch("own", types.MergePatchType, label(controlPlane)),
		"patch its own strategically": patch("own", types.StrategicMergePatchType, label(controlPlane)),
		"apply its own":               patch("own", types.ApplyPatchType, applied(slice("own", controlPlane))),
		"remove the label":            patch(made, types.MergePatchType, label(nil)),
		"another value":               patch(made, types.MergePatchType, label("tenant")),
		"remove all labels":           update(made, func(s *discoveryv1.EndpointSlice) { s.Labels = nil }),
		"another Service": update(made, func(s *discoveryv1.EndpointSlice) {
			metav1.SetMetaDataLabel(&s.ObjectMeta, discoveryv1.LabelServiceName, "other")
		}),
		"another address":                 update(made, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "192.0.2.3" }),
		"another condition":               update(made, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(false) }),
		"another port":                    update(made, func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(10250)) }),
		"no endpoints":                    update(made, func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }),
		"another address, without labels": update(made, func(s *discoveryv1.EndpointSlice) { s.Labels, s.Endpoints[0].Addresses[0] = nil, "192.0.2.3" }),
	}
	for _, what := range slices.Sorted(maps.Keys(refused)) {
		if err := refused[what]; !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only the control plane writes EndpointSlices") {
			g.t.Errorf("a tenant: %s: %v, want it refused", what, err)
		}
	}

	if err := update("own", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "192.0.2.5" }); err != nil {
		g.t.Errorf("a tenant changes its own slice: %v", err)
	}

	after, err := client.Get(ctx, made, metav1.GetOptions{})
	g.must(err)

	if diff := cmp.Diff(before, after); diff != "" {
		g.t.Errorf("the control plane's slice (-before +after)\n%s", diff)
	}
}

// checkCollector removes an owner, as the garbage collector does when a Service is deleted without
// its slices, and then the slice.
func (g *guarded) checkCollector(name string) {
	g.t.Helper()
	ctx := g.t.Context()
	controller := g.slices(kubeSystem + "endpointslice-controller")
	s, err := controller.Get(ctx, name, metav1.GetOptions{})
	g.must(err)

	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "1"}}
	_, err = controller.Update(ctx, s, metav1.UpdateOptions{})
	g.must(err)

	collector := g.slices(kubeSystem + "generic-garbage-collector")

	s, err = collector.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
	if err != nil || len(s.OwnerReferences) > 0 {
		g.t.Errorf("the garbage collector removes an owner: %v", err)
	}

	if err := collector.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		g.t.Errorf("the garbage collector deletes a slice: %v", err)
	}
}
