package campaign

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
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

const hostile = "tenant" // the namespace in which the tenant may write

// tenant is a service account with edit rights in one namespace, and the state of its attack.
type tenant struct {
	client  *kubernetes.Clientset
	cluster *kubernetes.Clientset // writes status as kubelets and load balancers' controllers do
	steps   *generator
	done    map[string]int // calls by kind and result
	say     func(format string, args ...any)
}

// newTenant creates the account with the rights of the ClusterRole edit in its namespace, and to
// endpoint slices, which that role had before Kubernetes 1.22.
func newTenant(ctx context.Context, g *ground, o Options) (*tenant, error) {
	t := &tenant{cluster: g.client, done: map[string]int{}, say: g.say}
	if err := standinAggregation(ctx, g.client); err != nil {
		return nil, err
	}

	const wired = 2 // pods with an interface, on different nodes
	for i := range wired {
		if _, err := g.AddPod(ctx, tenantPod(i)); err != nil {
			return nil, err
		}
	}

	account, err := g.client.CoreV1().ServiceAccounts(hostile).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mallory"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}

	slices := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "slices"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"*"}}}}
	if _, err := g.client.RbacV1().Roles(hostile).Create(ctx, slices, metav1.CreateOptions{}); err != nil {
		return nil, err
	}

	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: hostile}}
	for _, ref := range []rbacv1.RoleRef{{Kind: "ClusterRole", Name: "edit", APIGroup: rbacv1.GroupName}, {Kind: "Role", Name: "slices", APIGroup: rbacv1.GroupName}} {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}, RoleRef: ref, Subjects: subject}
		if _, err := g.client.RbacV1().RoleBindings(hostile).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}

	token, err := g.client.CoreV1().ServiceAccounts(hostile).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}

	config, err := g.RestConfig()
	if err != nil {
		return nil, err
	}

	own := rest.AnonymousClientConfig(config)

	own.BearerToken, own.QPS, own.Dial, own.WarningHandler = token.Status.Token, -1, config.Dial, rest.NoWarnings{}
	if t.client, err = kubernetes.NewForConfig(own); err != nil {
		return nil, err
	}

	if _, err := t.client.CoreV1().Pods(victim).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("the tenant may read the victim's namespace: %w", errors.Join(errors.New("not forbidden"), err))
	}

	v, err := valuesOf(ctx, g)
	if err != nil {
		return nil, err
	}

	v.wired = wired
	t.steps, err = newGenerator(o.Seed, v, o.Only)

	return t, err
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
	v := values{ports: harmfulPorts}
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

// attack writes until ctx ends, at most rate times per second.
func (t *tenant) attack(ctx context.Context, rate int) {
	last := ""

	_ = repeat(ctx, rate, func(ctx context.Context, _ int) error { // the calls' errors are counted
		s := t.steps.step()
		if s.attack && s.kind != last {
			last = s.kind
			t.say("%s at %s", s.kind, time.Now().Format("15:04:05.0"))
		}

		for _, c := range s.calls {
			each, cancel := context.WithTimeout(ctx, 10*time.Second)
			err := t.send(each, c)

			cancel()

			if ctx.Err() == nil {
				t.done[s.kind+" "+result(err)]++
			}
		}

		return nil
	})
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
