package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// hostile is the namespace in which the only tenant of a campaign may write. The namespaces of a
// campaign with several tenants begin with it.
const hostile = "tenant"

const (
	tenants        = 10 // of the campaign api
	namespacesEach = 2  // of one tenant
	wiredEach      = 2  // pods with an interface in each of these namespaces, on different nodes
)

// tenant is a service account with edit rights in its own namespaces, and the state of its attack.
type tenant struct {
	namespaces []string
	client     *kubernetes.Clientset
	cluster    *kubernetes.Clientset // writes status as kubelets and load balancers' controllers do
	steps      *generator
	done       map[string]int // calls by kind and result
	say        func(format string, args ...any)
}

// newTenants creates the tenants with their namespaces and pods.
func newTenants(ctx context.Context, g *ground) ([]*tenant, error) {
	if err := standinAggregation(ctx, g.client); err != nil {
		return nil, err
	}

	var out []*tenant

	for i := range tenants {
		t := &tenant{cluster: g.client, done: map[string]int{}, say: g.say}

		for n := range namespacesEach {
			namespace := fmt.Sprintf("%s%d-%c", hostile, i, 'a'+n)
			t.namespaces = append(t.namespaces, namespace)

			for pod := range wiredEach {
				if _, err := g.AddPod(ctx, tenantPod(namespace, pod)); err != nil {
					return nil, err
				}
			}
		}

		if err := t.createAccount(ctx, g); err != nil {
			return nil, fmt.Errorf("tenant %d: %w", i, err)
		}

		out = append(out, t)
	}

	return out, nil
}

// createAccount creates the tenant's account, with the rights of the ClusterRole edit in its
// namespaces, and to endpoint slices, which that role had before Kubernetes 1.22.
func (t *tenant) createAccount(ctx context.Context, g *ground) error {
	accounts := g.client.CoreV1().ServiceAccounts(t.namespaces[0])

	account, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mallory"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}

	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}

	for _, namespace := range t.namespaces {
		slices := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "slices"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"*"}}}}
		if _, err := g.client.RbacV1().Roles(namespace).Create(ctx, slices, metav1.CreateOptions{}); err != nil {
			return err
		}

		for _, ref := range []rbacv1.RoleRef{{Kind: "ClusterRole", Name: "edit", APIGroup: rbacv1.GroupName}, {Kind: "Role", Name: "slices", APIGroup: rbacv1.GroupName}} {
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}, RoleRef: ref, Subjects: subject}
			if _, err := g.client.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
	}

	token, err := accounts.CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}

	config, err := g.RestConfig()
	if err != nil {
		return err
	}

	own := rest.AnonymousClientConfig(config)

	own.BearerToken, own.QPS, own.Dial, own.WarningHandler = token.Status.Token, -1, config.Dial, rest.NoWarnings{}
	if t.client, err = kubernetes.NewForConfig(own); err != nil {
		return err
	}

	if _, err := t.client.CoreV1().Pods(victim).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		return fmt.Errorf("the tenant may read the victim's namespace: %w", errors.Join(errors.New("not forbidden"), err))
	}

	return nil
}

// standinAggregation aggregates the role edit, as the controller manager does.
func standinAggregation(ctx context.Context, client *kubernetes.Clientset) error {
	var rules []rbacv1.PolicyRule

	for _, label := range []string{"edit", "view"} {
		parts, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{LabelSelector: "rbac.authorization.k8s.io/aggregate-to-" + label + "=true"})
		if err != nil {
			return err
		}

		for _, part := range parts.Items {
			rules = append(rules, part.Rules...)
		}
	}

	if len(rules) == 0 {
		return errors.New("no role is to be part of edit")
	}

	edit, err := client.RbacV1().ClusterRoles().Get(ctx, "edit", metav1.GetOptions{})
	if err != nil {
		return err
	}

	edit.Rules = rules
	_, err = client.RbacV1().ClusterRoles().Update(ctx, edit, metav1.UpdateOptions{})

	return err
}

// Harmful values that are the same in every lab.
var (
	harmfulPorts     = []int32{22, 53, 80, 123, 443, 2379, 2380, 6081, 6443, 6641, 6642, 6645, 7000, 8000, 8080, 8091, 9409, 9410, 10250, 10256, 10257, 10259, 30080, 31007, 40001, 49152, 51820, 65535, 1}
	harmfulAddresses = []string{
		"127.0.0.1", "::1", "169.254.169.254", "169.254.169.1", "169.254.169.2", "fd69::1", "fd69::2", "fe80::1", "224.0.0.18", "ff02::1", "0.0.0.0", "::", "255.255.255.255",
		lab.CentralIP4, lab.CentralIP6, lab.ExtIP4, lab.ExtIP6, "100.64.0.1", "100.64.0.2", "fd98::1", "fd98::2", "10.244.0.1", "10.244.0.2", "10.244.1.1", "10.244.1.2",
		"fd00:10:244::1", "fd00:10:244::2", "fd00:10:244:1::1", "fd00:10:244:1::2", "10.244.0.0", "10.244.0.255", "10.96.0.1", "203.0.113.7", "2001:db8:10::7", "::ffff:10.244.0.3",
	}
)

// valuesOf reads harmful values from the live cluster: addresses and MACs in use.
func valuesOf(ctx context.Context, g *ground) (values, error) {
	v := values{ports: harmfulPorts, wired: wiredEach}
	for _, text := range harmfulAddresses {
		v.addresses = append(v.addresses, netip.MustParseAddr(text))
	}

	for _, n := range g.Nodes() {
		v.hosts = append(v.hosts, n.IP4, n.IP6)
	}

	v.hosts = append(v.hosts, netip.MustParseAddr(lab.CentralIP4), netip.MustParseAddr(lab.CentralIP6))
	v.used = append(v.used, outside(false), outside(true), g.clusterIP(false), g.clusterIP(true))
	v.used = append(v.used, v.hosts...)

	for _, n := range g.Nodes() {
		subnets, err := g.subnets(ctx, n.Name)
		if err != nil {
			return v, err
		}

		v.subnets = append(v.subnets, subnets)
	}

	for _, name := range []string{"a", "b", "c"} {
		v.used = append(v.used, g.pods[name].IPs...)
	}

	v.addresses = append(v.addresses, v.used...)
	v.macs = []string{"ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "01:00:5e:00:00:01", "33:33:00:00:00:01", "02:00:00:00:00:09"}

	for _, query := range [][]string{{"Logical_Router_Port", "mac"}, {"Logical_Switch_Port", "addresses"}} {
		out, err := g.Exec(ctx, "central", "ovn-nbctl", "--timeout=20", "--data=bare", "--no-headings", "--columns="+query[1], "list", query[0])
		if err != nil {
			return v, err
		}

		for _, word := range strings.Fields(string(out)) {
			if strings.Count(word, ":") == 5 && len(word) == 17 {
				v.macs = append(v.macs, word)
			}
		}
	}

	for _, n := range g.Nodes() {
		out, err := g.Exec(ctx, n.Name, "ip", "-br", "link")
		if err != nil {
			return v, err
		}

		for _, word := range strings.Fields(string(out)) {
			if strings.Count(word, ":") == 5 && len(word) == 17 {
				v.macs = append(v.macs, word)
			}
		}
	}

	return v, nil
}

// subnets returns the pod subnets of a node.
func (g *ground) subnets(ctx context.Context, node string) ([]netip.Prefix, error) {
	object, err := g.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}

	subnets, err := annotation.ParseNodeSubnets(object.Annotations)
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", node, err)
	}

	return subnets, nil
}

// attackAll lets all tenants write until ctx ends, hostileRate steps per second in all. The same seed
// and values make the same steps. With harmless, the calls are for ConfigMaps.
func attackAll(ctx context.Context, all []*tenant, v values, o Options, harmless bool) error {
	for i, t := range all {
		var err error
		if t.steps, err = newGenerator(rand.NewPCG(o.Seed, uint64(i)), v, o.Only, t.namespaces); err != nil {
			return err
		}
	}

	var group sync.WaitGroup
	for _, t := range all {
		group.Go(func() { t.attack(ctx, time.Second*time.Duration(len(all))/hostileRate, harmless) })
	}

	group.Wait()

	return nil
}

// attack makes a step each time the pause has passed, until ctx ends.
func (t *tenant) attack(ctx context.Context, pause time.Duration, harmless bool) {
	last := ""

	_ = repeat(ctx, pause, func(ctx context.Context, _ int) error { // the calls' errors are counted
		s := t.steps.step()
		if s.attack && s.kind != last && !harmless {
			last = s.kind
			t.say("%s of %s at %s", s.kind, t.namespaces[0], time.Now().Format("15:04:05.0"))
		}

		for _, c := range s.calls {
			each, cancel := context.WithTimeout(ctx, 10*time.Second)
			err := t.send(each, c, harmless)

			cancel()

			if ctx.Err() == nil && !harmless {
				t.done[s.kind+" "+result(err)]++
			}
		}

		return nil
	})
}

// removeObjects deletes all that the tenants have made, so that the same attack meets the same state.
// Their pods with interfaces stay.
func removeObjects(ctx context.Context, all []*tenant) error {
	var none int64

	now, list := metav1.DeleteOptions{GracePeriodSeconds: &none}, metav1.ListOptions{}

	for _, t := range all {
		for _, namespace := range t.namespaces {
			services, err := t.client.CoreV1().Services(namespace).List(ctx, list)
			if err != nil {
				return err
			}

			for _, s := range services.Items {
				err = errors.Join(err, t.client.CoreV1().Services(namespace).Delete(ctx, s.Name, now))
			}

			wired := make([]string, wiredEach)
			for pod := range wired {
				wired[pod] = "metadata.name!=" + tenantPod(namespace, pod).Name
			}

			err = errors.Join(err,
				t.client.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{FieldSelector: strings.Join(wired, ",")}),
				t.client.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(ctx, now, list),
				t.client.NetworkingV1().NetworkPolicies(namespace).DeleteCollection(ctx, now, list),
				t.client.CoreV1().ConfigMaps(namespace).DeleteCollection(ctx, now, list))
			if err != nil {
				return fmt.Errorf("remove the objects in %s: %w", namespace, err)
			}
		}
	}

	return nil
}

// result says what the API server did with a call.
func result(err error) string {
	switch {
	case err == nil:
		return "taken"
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsRequestEntityTooLargeError(err):
		return "refused"
	}

	return "failed"
}
