package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile/churntest"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestAnyOrder: any sequence of changes, which arrive in any order and in any batches, with crashes
// and lost connections, ends in the database that a cold start on the final objects makes.
// OVN_EBPF_SEEDS has other seeds, separated by commas, and OVN_EBPF_CHANGES the changes for each.
func TestAnyOrder(t *testing.T) {
	seeds, changes := []uint64{2, randomtest.Seed(t)}, 3000
	if testing.Short() {
		changes = 1500
	}

	if text := os.Getenv("OVN_EBPF_SEEDS"); text != "" {
		seeds = nil

		for s := range strings.SplitSeq(text, ",") {
			var seed uint64
			if _, err := fmt.Sscan(s, &seed); err != nil {
				t.Fatalf("OVN_EBPF_SEEDS: %v", err)
			}

			seeds = append(seeds, seed)
		}
	}

	if text := os.Getenv("OVN_EBPF_CHANGES"); text != "" {
		if _, err := fmt.Sscan(text, &changes); err != nil {
			t.Fatalf("OVN_EBPF_CHANGES: %v", err)
		}
	}

	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			start := time.Now()
			p := newProperty(t, seed, changes)
			p.run(changes)
			p.settle()
			p.checkAllocations()
			p.checkColdStart()
			t.Logf("OVN_EBPF_SEEDS=%d OVN_EBPF_CHANGES=%d: %s, %s", seed, changes, p.summary(), time.Since(start).Round(time.Second))
		})
	}
}

// property is a cluster, a database, and the replica that leads now.
type property struct {
	t      *testing.T
	rng    *rand.Rand
	api    *standinAPI
	churn  *churntest.Churn
	server *nbtest.Server
	path   *databasePath
	now    *standinReplica
	log    *slog.Logger
	events record.EventRecorder // nil: events are dropped
	done   struct{ crashes, cuts, outages, restarts, relists int }
}

func newProperty(t *testing.T, seed uint64, changes int) *property {
	p := &property{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), api: newStandinAPI(), server: nbtest.Start(t),
		log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	}
	p.api.faults = rand.New(rand.NewPCG(seed, 2))
	p.churn = &churntest.Churn{
		Rand: rand.New(rand.NewPCG(seed, 3)), API: p.api, Names: max(changes/20, 20), Nodes: 8 + min(changes/1000, 40),
	}
	p.path = newDatabasePath(t, p.server.Endpoint)
	p.now = p.lead(p.watch(), p.path.endpoint)

	return p
}

func propertyConfig() plan.Config {
	return plan.Config{
		Hosts:        annotation.TrustAll(),
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14"), netip.MustParsePrefix("fd00:10:128::/48")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
		JoinSubnets:  []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")},
		SNATPorts:    cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400,
		Shares: services.Shares{Namespace: 70}, // lets Services in and out
	}
}

// standinReplica is a leader and its watch.
type standinReplica struct {
	*standinWatch
	cluster *plan.Cluster
	loop    *Loop
	stop    func()
}

func (p *property) watch() *standinReplica {
	watch, cluster, err := newStandinWatch(p.api, propertyConfig())
	if err != nil {
		p.t.Fatal(err)
	}

	return &standinReplica{standinWatch: watch, cluster: cluster}
}

// lead begins a term with what the replica has seen so far.
func (p *property) lead(r *standinReplica, endpoint string) *standinReplica {
	db := nb.New([]string{endpoint}, p.log)
	cfg := propertyConfig()
	r.loop = New(Options{DB: db, Plan: cfg, Log: p.log, Subnets: []ipam.Subnet{{Prefix: cfg.ClusterCIDRs[0], HostLen: 27}, {Prefix: cfg.ClusterCIDRs[1], HostLen: 64}}})
	r.loop.cluster.Stores = r.cluster.Stores
	r.loop.source = source{resources: r.resources(), patcher: patcher{read: p.api.read, write: p.api.patch}}
	r.loop.status.set(func(s *status) { s.watching = true })
	r.loop.events = p.events
	r.changed = r.loop.changed
	ctx, cancel := context.WithCancel(context.Background())

	var group errgroup.Group
	group.Go(func() error { return db.Run(ctx) })
	group.Go(func() error { return election.WithoutElection(ctx, r.loop.lead) })

	r.stop = func() {
		cancel()

		if err := group.Wait(); err != nil {
			p.t.Errorf("leader: %v", err)
		}
	}

	p.t.Cleanup(func() { r.stop() })

	return r
}

// resource is one of the resources, at random.
func (p *property) resource() string {
	names := standinNames()
	return names[p.rng.IntN(len(names))]
}

func (p *property) run(changes int) {
	for i := range changes {
		p.churn.Step()

		for p.rng.IntN(3) == 0 {
			p.now.deliver(p.resource(), 1+p.rng.IntN(30))
		}

		if p.rng.IntN(20) == 0 {
			time.Sleep(time.Duration(p.rng.IntN(8)) * time.Millisecond) // lets the leader work between changes
		}

		if i%10 == 0 {
			p.disturb()
		}
	}
}

// disturb does, now and then, what clusters suffer.
func (p *property) disturb() {
	switch n := p.rng.IntN(100); {
	case n < 4: // the leader dies; another one has seen what it has seen
		p.done.crashes++
		p.now.stop()
		p.now = p.lead(p.now, p.path.endpoint)
	case n < 7:
		p.done.cuts++
		p.path.cut()
	case n < 8:
		p.done.restarts++
		p.server.Kill()
		p.server.Run()
	case n < 10:
		p.done.outages++
		p.api.setDown(true)
	case n < 20:
		p.api.setDown(false)
	case n < 24:
		p.done.relists++
		p.now.relist(p.resource())
	}
}

func (p *property) summary() string {
	text := fmt.Sprintf("%+v", p.done)
	for _, r := range standinNames() {
		text += fmt.Sprintf(" %s %d", r, len(p.api.All(r)))
	}

	return fmt.Sprintf("%s rows %d", text, len(p.server.Normal()))
}

// settle heals what is wrong and waits until the leader has nothing left to do.
func (p *property) settle() {
	p.t.Helper()
	p.churn.Heal()
	p.api.setDown(false)
	p.api.mu.Lock()
	p.api.faults = nil
	p.api.mu.Unlock()
	p.await(p.now)
}

func (p *property) await(r *standinReplica) {
	p.t.Helper()

	quiet := func() bool {
		for _, name := range standinNames() {
			r.deliver(name, 1<<30)
		}

		_, _, waiting := r.loop.lag.oldest()

		return r.behind() == 0 && waiting+r.loop.lag.heldOwners(plan.KindPolicy, plan.KindSelector, plan.KindService)+r.loop.db.Joining() == 0 && !strings.Contains(strings.Join(r.loop.Failing(), ""), "no such row") && r.loop.queueLen() == 0 && r.loop.Ready() == nil
	}
	deadline := time.Now().Add(5 * time.Minute) // for a starved machine; a right one never takes that long

	for n := 0; n < 5; n++ {
		if !quiet() {
			n = 0
		}

		if time.Now().After(deadline) {
			p.t.Fatalf("never settles: %v\n%s", r.loop.Ready(), strings.Join(r.loop.Failing(), "\n"))
		}

		time.Sleep(5 * time.Millisecond)
	}
}

// checkAllocations: nothing is given twice, nothing is lost, and only who cannot
// have an address has none.
func (p *property) checkAllocations() {
	p.t.Helper()

	claimed := map[string]string{}
	claim := func(what, who string) {
		if other := claimed[what]; other != "" {
			p.t.Errorf("%s is %s's and %s's", what, other, who)
		}

		claimed[what] = who
	}

	for _, obj := range p.api.All(churntest.Nodes) {
		n, _ := obj.(*corev1.Node)
		claim("id "+n.Annotations[annotation.NodeID], n.Name)

		subnets, err := annotation.ParseNodeSubnets(n.Annotations)
		if err != nil {
			p.t.Errorf("node %s: %v", n.Name, err)
		}

		for _, s := range subnets {
			claim("subnet "+s.String(), n.Name)
		}
	}
	// One snapshot: a pod that cannot have what it requests asks again and again.
	allocated, live := p.now.loop.status.allocator.Pods(), map[ipam.Pod]bool{}

	failing := p.now.loop.failures.owners()
	for _, obj := range p.api.All(churntest.Pods) {
		pod, _ := obj.(*corev1.Pod)
		if !plan.NeedsPort(pod) {
			continue
		}

		if p.now.cluster.Node(pod.Spec.NodeName) == nil {
			continue // its annotation is not read
		}

		live[ipam.PodOf(pod)] = true

		var held []string

		for _, a := range allocated[ipam.PodOf(pod)] {
			claim("address "+a.Addr().String(), churntest.Key(pod))
			held = append(held, a.Addr().String())
		}

		failed := slices.Contains(failing, plan.PodKey(pod.Namespace, pod.Name))
		if said := addressesOf(pod); !slices.Equal(said, held) && !failed {
			p.t.Errorf("pod %s has %v and its annotation says %v", churntest.Key(pod), held, said)
		}

		if len(held) == 0 && !failed {
			p.t.Errorf("pod %s has no address and no error", churntest.Key(pod))
		}
	}

	for pod := range allocated {
		if !live[pod] {
			p.t.Errorf("the addresses of %v are lost: there is no such pod", pod)
		}
	}
}

// checkColdStart compares with an empty database and a replica that has listed the
// final objects.
func (p *property) checkColdStart() {
	p.t.Helper()
	server := nbtest.Start(p.t)

	r := p.watch()
	for _, name := range standinNames() {
		r.relist(name)
	}

	before := p.api.version
	cold := p.lead(r, server.Endpoint)
	p.await(cold)

	if p.api.version != before {
		p.t.Error("the cold start changed an annotation")
	}

	if diff := difference(server.Normal(), p.server.Normal()); diff != "" {
		p.t.Errorf("database (-cold start +after all changes):\n%s\nfailing:\n%s", diff, difference(cold.loop.Failing(), p.now.loop.Failing()))
	}

	p.now.stop()
	again := p.lead(p.now, p.server.Endpoint)
	p.await(again)

	if stats := again.loop.db.Stats(); stats.Transactions != 0 {
		p.t.Errorf("the next leader wrote %d transactions: %v", stats.Transactions, stats.Operations)
	}
}

// addressesOf are the pod's addresses, by its annotation.
func addressesOf(p *corev1.Pod) []string {
	network, err := annotation.ParsePod(p.Annotations)
	if err != nil {
		return nil
	}

	var out []string
	for _, a := range network.Addresses {
		out = append(out, a.Addr().String())
	}

	return out
}

// difference is what one of two sorted lists has and the other has not, the first of it.
func difference(want, got []string) string {
	const most = 40

	var out []string

	for len(want)+len(got) > 0 {
		switch {
		case len(got) == 0 || len(want) > 0 && want[0] < got[0]:
			out, want = append(out, "-"+want[0]), want[1:]
		case len(want) == 0 || got[0] < want[0]:
			out, got = append(out, "+"+got[0]), got[1:]
		default:
			want, got = want[1:], got[1:]
		}
	}

	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}

	return strings.Join(out, "\n")
}
