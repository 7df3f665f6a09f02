package campaign

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// most is the number of objects per kind that random steps have at a time.
const most = 30

// verb is what a call does.
type verb int

const (
	create verb = iota
	replace
	remove
	toggle // remove the object, or create it if it does not exist
	patch  // merge a patch into the object
	report // write the status, as kubelet or a load balancer's controller does
)

// call is one call of the API server. Calls are generated without a cluster, so a test can count
// which fields they set.
type call struct {
	verb   verb
	object metav1.Object
	grace  int64                   // of remove and toggle, in seconds
	patch  []byte                  // of patch
	status func(now metav1.Object) // of report: changes the status of the object as it is now
}

// step is what the tenant does at a time: calls of one kind in one of its namespaces, or nothing.
type step struct {
	kind   string
	attack bool
	calls  []call
}

// generator makes the tenant's steps from a seed: random ones, and every second one of an attack.
type generator struct {
	r          *rand.Rand
	values     values
	only       *regexp.Regexp // of the kinds of steps; nil: all
	namespaces []string       // of the tenant
	serial     int

	queue []step   // rest of the current attack
	round []attack // those that follow it
}

// values are the inputs for addresses, MACs, ports and nodes.
type values struct {
	addresses []netip.Addr
	used      []netip.Addr     // those used by probes and nodes
	hosts     []netip.Addr     // those of nodes, the control plane among them
	subnets   [][]netip.Prefix // of each node
	macs      []string
	ports     []int32
	wired     int // number of pods with an interface
}

func newGenerator(source rand.Source, v values, only *regexp.Regexp, namespaces []string) (*generator, error) {
	g := &generator{r: rand.New(source), values: v, only: only, namespaces: namespaces}
	if len(g.kinds()) == 0 && len(g.attacks()) == 0 {
		return nil, errors.New("no kind of steps is left")
	}

	return g, nil
}

// kind is a kind of random steps. Those with more weight are chosen more often.
type kind struct {
	name   string
	weight int
	calls  func(name string) []call
}

// kinds returns the chosen kinds of random steps.
func (g *generator) kinds() []kind {
	all := []kind{
		{"annotations of a running pod", 3, func(string) []call {
			return []call{g.patchPod(fmt.Sprintf("wired%d", g.r.IntN(max(1, g.values.wired))))}
		}},
		{"pod", 2, func(name string) []call { return []call{g.pod(name)} }},
		{"annotations of a pod", 1, func(name string) []call { return []call{g.patchPod(name)} }},
		{"status of a pod", 1, func(name string) []call { return []call{g.podStatus(name)} }},
		{"Service", 2, func(name string) []call { return []call{g.svc(name)} }},
		{"status of a Service", 1, func(name string) []call { return []call{g.announce(name)} }},
		{"endpoint slice", 1, func(name string) []call { return []call{g.slice(name)} }},
		{"policy", 1, func(name string) []call { return []call{g.policy(name)} }},
	}

	return slices.DeleteFunc(all, func(k kind) bool { return g.only != nil && !g.only.MatchString(k.name) })
}

// step returns the next step.
func (g *generator) step() step {
	g.serial++
	if s, ok := g.attack(); ok && len(s.calls) > 0 {
		return s
	}

	var choice []kind

	for _, k := range g.kinds() {
		for range k.weight {
			choice = append(choice, k)
		}
	}

	if len(choice) == 0 {
		return step{}
	}

	k := pick(g, choice...)

	return inNamespace(step{kind: k.name, calls: k.calls(fmt.Sprintf("h%d", g.serial%most))}, pick(g, g.namespaces...))
}

// inNamespace sets the namespace of all objects of the step.
func inNamespace(s step, namespace string) step {
	for _, c := range s.calls {
		c.object.SetNamespace(namespace)
	}

	return s
}

// attack returns the next step of the current attack, for every second step. All attacks are made
// in a random order before one is made again.
func (g *generator) attack() (step, bool) {
	if g.serial%2 == 0 {
		return step{}, false
	}

	if len(g.queue) == 0 {
		if len(g.round) == 0 {
			g.round = g.attacks()
			g.r.Shuffle(len(g.round), func(i, j int) { g.round[i], g.round[j] = g.round[j], g.round[i] })
		}

		if len(g.round) == 0 {
			return step{}, false
		}

		a := g.round[0]

		g.round = g.round[1:]

		namespace := pick(g, g.namespaces...)
		for _, calls := range a.steps() {
			g.queue = append(g.queue, inNamespace(step{a.name, true, calls}, namespace))
		}
	}

	s := g.queue[0]
	g.queue = g.queue[1:]

	return s, true
}

func pick[T any](g *generator, of ...T) T { return of[g.r.IntN(len(of))] }

// ptr returns nil, or a pointer to one of the values.
func ptr[T any](g *generator, of ...T) *T {
	i := g.r.IntN(len(of) + 1)
	if i == len(of) {
		return nil
	}

	return &of[i]
}

// address returns an address; half of them are in use by others.
func (g *generator) address() netip.Addr {
	switch g.r.IntN(8) {
	case 0:
		return netip.AddrFrom4([4]byte{10, 244, byte(g.r.IntN(3)), byte(g.r.IntN(256))})
	case 1, 2, 3, 4:
		return pick(g, g.values.used...)
	}

	return pick(g, g.values.addresses...)
}

// external returns an address that a Service asks for: any but those of the outside host. With the
// chart's defaults, a Service can take what the cluster sends to an address outside that is no
// node's (CVE-2020-8554, docs/services.md), so the probes to the outside host would lose. Nodes,
// the API server's among them, other Services, pods, routers and reserved networks are tried.
func (g *generator) external() netip.Addr {
	for {
		a := g.address().Unmap()
		if a != outside(false) && a != outside(true) && a.String() != lab.BehindIP4 && a.String() != lab.BehindIP6 {
			return a
		}
	}
}

// port returns a port; half of them have a listener, or are a connection's of a host.
func (g *generator) port() int32 {
	if g.r.IntN(2) == 0 {
		return pick[int32](g, sshPort, outsidePort, podPort, hostPort, servicePort, dnsPort, ntpPort, ephemeralPort, boundPort)
	}

	return pick(g, g.values.ports...)
}

func (g *generator) protocol() corev1.Protocol {
	return pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

func (g *generator) node() string { return pick(g, "node1", "node2", "node3") }

// junk returns text that is invalid in every field.
func (g *generator) junk() string {
	return pick(g, "", "null", "{}", "[]", `{"default":null}`, `{"default":{"ip_addresses":[null]}}`, strings.Repeat("[", 10000), strings.Repeat("x", 100000),
		`{"default":{"ip_addresses":["10.244.0.5/99"],"mac_address":"zz"}}`, "\x00\x01\u202e", `"default"`, "true", "1e999", `{"a":`)
}

func (g *generator) labels() map[string]string {
	out := map[string]string{"app": pick(g, "web", "new", "guarded", "x")}
	for i := range pick(g, 0, 1, 500) {
		out[fmt.Sprintf("l%d", i)] = "v"
	}

	return out
}

// meta returns the metadata of an object with this name.
func (g *generator) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: g.labels(), Annotations: g.annotations()}
}

// fresh returns the call for the object of a random step: half of the time it removes the object if
// it exists, otherwise it creates or replaces it.
func (g *generator) fresh(o metav1.Object) call {
	return call{verb: pick(g, toggle, toggle, toggle, create, create, replace), object: o, grace: pick[int64](g, 0, 0, 30)}
}

// named returns an object of a kind that has only a name, for calls that need no more.
func named[T any, O interface {
	*T
	metav1.Object
}](name string) O {
	o := O(new(T))
	o.SetName(name)

	return o
}

// removeAll returns a step that removes objects.
func removeAll(objects ...metav1.Object) []call {
	var out []call
	for _, o := range objects {
		out = append(out, call{verb: remove, object: nameOnly(o)})
	}

	return out
}

// nameOnly returns an empty object of the same kind and name.
func nameOnly(o metav1.Object) metav1.Object {
	switch o.(type) {
	case *corev1.Pod:
		return named[corev1.Pod](o.GetName())
	case *corev1.Service:
		return named[corev1.Service](o.GetName())
	case *discoveryv1.EndpointSlice:
		return named[discoveryv1.EndpointSlice](o.GetName())
	default:
		return named[networkingv1.NetworkPolicy](o.GetName())
	}
}
