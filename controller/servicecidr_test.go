package controller_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
)

// TestServiceNetworkOfAPIServer: a configuration that has another service network than the API
// server is named from the start, before there is any Service.
func TestServiceNetworkOfAPIServer(t *testing.T) {
	w := newWorld(t)
	cfg := config(w.nb.Endpoint, w.config)
	cfg.ServiceCIDRs[0] = netip.MustParsePrefix("10.96.0.0/20")
	r := start(t, cfg, "one")
	w.awaitServiceNetwork(r, "kubernetes", "service network 10.96.0.0/16 of the API server: outside the service networks 10.96.0.0/20,fd00:10:96::/112")
	r.waitReady() // the rest is served
}

// TestServiceCIDRAdded: a service network that the API server gets beyond the configured ones is
// named until it goes, and one inside them is not.
func TestServiceCIDRAdded(t *testing.T) {
	w := newWorld(t)
	r := w.run(t, "one")
	r.waitReady()

	cidrs := w.client.NetworkingV1().ServiceCIDRs()

	for name, network := range map[string]string{"inside": "10.96.8.0/24", "beyond": "10.97.0.0/24"} {
		cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{network}}}
		if _, err := cidrs.Create(t.Context(), cidr, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	w.awaitServiceNetwork(r, "beyond", "service network 10.97.0.0/24 of the API server: outside the service networks 10.96.0.0/16,fd00:10:96::/112")

	if n := r.metric(`ovnkube_controller_failing_owners{kind="servicecidr"}`); n != "1" {
		t.Errorf("%s ServiceCIDRs fail, want 1: that is beyond", n)
	}

	if err := cidrs.Delete(t.Context(), "beyond", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	nbtest.Eventually(t, "no service network is named", func() bool {
		code, body := r.get("/readyz")
		return code == http.StatusOK && !strings.Contains(body, "servicecidr/")
	})
}

// TestServiceCIDRsForbidden: without the right to read ServiceCIDRs, as with an older ClusterRole,
// the controller works, and it reads them when it gets the right.
func TestServiceCIDRsForbidden(t *testing.T) {
	w := newWorld(t)

	const user = "controller"

	all := func(resources ...string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"*"}, APIGroups: []string{"", "discovery.k8s.io", "networking.k8s.io", "coordination.k8s.io"}, Resources: resources},
			{Verbs: []string{"get"}, NonResourceURLs: []string{"/version"}},
		}}
	}
	old := []string{"nodes", "pods", "services", "namespaces", "events", "endpointslices", "networkpolicies", "leases"}

	roles := w.client.RbacV1()
	if _, err := roles.ClusterRoles().Create(t.Context(), all(old...), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	if _, err := roles.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	api := rest.CopyConfig(w.config)
	api.Impersonate.UserName = user
	cfg := config(w.nb.Endpoint, api)
	cfg.ServiceCIDRs[0] = netip.MustParsePrefix("10.96.0.0/20")
	r := start(t, cfg, "one")
	r.waitReady()

	if _, body := r.get("/readyz"); strings.Contains(body, "servicecidr/") {
		t.Errorf("ServiceCIDRs are read without the right to: %s", body)
	}

	if _, err := roles.ClusterRoles().Update(t.Context(), all(append(old, "servicecidrs")...), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.awaitServiceNetwork(r, "kubernetes", "service network 10.96.0.0/16 of the API server")
}

// awaitServiceNetwork returns when the controller's readiness and an Event say that about the
// ServiceCIDR.
func (w *world) awaitServiceNetwork(r *replica, name, text string) {
	w.t.Helper()
	nbtest.Eventually(w.t, "a line of /readyz about ServiceCIDR "+name, func() bool {
		_, body := r.get("/readyz")
		for line := range strings.Lines(body) {
			if strings.Contains(line, "servicecidr/"+name+": ") && strings.Contains(line, text) {
				return true
			}
		}

		return false
	})
	nbtest.Eventually(w.t, "an Event about ServiceCIDR "+name, func() bool {
		events, err := w.client.CoreV1().Events("").List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}

		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "ServiceCIDR" && e.InvolvedObject.Name == name && e.Type == corev1.EventTypeWarning &&
				e.Reason == "NotServed" && strings.Contains(e.Message, text) {
				return true
			}
		}

		return false
	})
}
