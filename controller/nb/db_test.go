package nb_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// open returns a connected database that is closed at the end of the test.
func open(t *testing.T, s *nbtest.Server) *nb.DB {
	t.Helper()

	endpoints, err := nb.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}

	db := nb.New(endpoints, slog.New(slog.DiscardHandler))
	run(t, db)

	return db
}

func run(t *testing.T, db *nb.DB) {
	t.Helper()

	ctx, cancel := context.WithCancel(context.Background())

	done := make(chan error)
	go func() { done <- db.Run(ctx) }()

	t.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	<-db.Connected()
}

func commit(t *testing.T, db *nb.DB, want map[plan.Key][]plan.Row) {
	t.Helper()

	if errs := db.Commit(t.Context(), want); len(errs) > 0 {
		t.Fatalf("Commit: %v", errs)
	}
}

// topology returns a small topology with a row of every kind.
func topology() map[plan.Key][]plan.Row {
	return map[plan.Key][]plan.Row{
		plan.ClusterKey(): {
			plan.LogicalRouter{Name: "lr", Options: map[string]string{"a": "b"}},
			plan.LoadBalancerGroup{Name: "group"},
			plan.AddressSet{Name: "set", Addresses: []string{"192.0.2.1", "192.0.2.2"}},
		},
		plan.NodeKey("n1"): {
			plan.LogicalSwitch{Name: "n1", OtherConfig: map[string]string{"subnet": "10.0.0.0/24"}, LoadBalancerGroups: []string{"group"}},
			plan.LogicalRouterPort{Router: "lr", Name: "rtos-n1", MAC: "0a:58:0a:00:00:01", Networks: []string{"10.0.0.1/24", "fd00::1/64"}},
			plan.GatewayChassis{Port: "rtos-n1", Name: "rtos-n1-chassis", Chassis: "n1", Priority: 1},
			plan.LogicalSwitchPort{Switch: "n1", Name: "stor-n1", Type: "router", Addresses: []string{"router"}, Options: map[string]string{"router-port": "rtos-n1"}},
			plan.StaticRoute{Router: "lr", Prefix: "0.0.0.0/0", NextHop: "10.0.0.9", OutputPort: "rtos-n1"},
			plan.StaticRoute{Router: "lr", Policy: "src-ip", Prefix: "10.0.0.0/24", NextHop: "10.0.0.9"},
			plan.RouterPolicy{Router: "lr", Priority: 1004, Match: "ip4", Action: "reroute", NextHops: []string{"10.0.0.2"}},
			plan.StaticRoute{Router: "lr", Prefix: "0.0.0.0/0", NextHop: "10.0.0.8", OutputPort: "rtos-n1", BFD: "rtos-n1 10.0.0.8"},
			plan.BFD{Port: "rtos-n1", Destination: "10.0.0.8"},
			plan.StaticMACBinding{Port: "rtoe-GR_n1", IP: "10.0.0.4", MAC: "0a:58:0a:00:00:04", Override: true},
			plan.NAT{Router: "lr", Type: "snat", ExternalIP: "192.0.2.1", LogicalIP: "10.0.0.0/16", ExternalPortRange: "49152-65535"},
		},
		plan.ServiceKey("ns", "s"): {
			plan.LoadBalancer{Groups: []string{"group"}, Name: "lb", Protocol: "tcp", VIPs: map[string]string{"1.2.3.4:80": ""}, Options: map[string]string{"reject": "true"}},
			plan.LoadBalancer{Switches: []string{"n1"}, Routers: []string{"lr"}, Name: "own", Protocol: "tcp", VIPs: map[string]string{"1.2.3.5:80": ""}},
		},
		plan.PodKey("ns", "p"): {
			plan.LogicalSwitchPort{Switch: "n1", Name: "ns_p", Incarnation: "u1", Addresses: []string{"0a:58:0a:00:00:03 10.0.0.3"}, Tag: 0},
		},
	}
}

func TestCommitWritesOnceAndOnlyDifferences(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	commit(t, db, topology())

	if got := db.Stats().Transactions; got != 1 {
		t.Errorf("first commit: %d transactions, want 1", got)
	}

	before := s.Dump()

	commit(t, db, topology())

	if got := db.Stats().Transactions; got != 1 {
		t.Errorf("second commit of the same rows wrote: %d transactions, want 1", got)
	}

	// A new process reads the existing rows and writes nothing either.
	again := open(t, s)
	commit(t, again, topology())

	if got := again.Stats().Transactions; got != 0 {
		t.Errorf("restart wrote: %d transactions, want 0", got)
	}

	if diff := cmp.Diff(before, s.Dump()); diff != "" {
		t.Errorf("database changed (-before +after):\n%s", diff)
	}
}

func TestCommitChangesOneColumn(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	commit(t, db, topology())

	uuid := s.Nbctl("--bare", "--columns=_uuid", "find", "logical_switch_port", "name=ns_p")
	pod := topology()[plan.PodKey("ns", "p")][0].(plan.LogicalSwitchPort)
	pod.Addresses = []string{"0a:58:0a:00:00:04 10.0.0.4"}
	commit(t, db, map[plan.Key][]plan.Row{plan.PodKey("ns", "p"): {pod}})

	want := map[string]uint64{"update": 1}
	got := db.Stats().Operations
	delete(got, "insert")
	delete(got, "mutate")

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}

	if now := s.Nbctl("--bare", "--columns=_uuid", "find", "logical_switch_port", "name=ns_p"); now != uuid {
		t.Errorf("row was replaced: %s, then %s", uuid, now)
	}

	pod.Incarnation = "u2" // a new pod of the same name needs a new row
	commit(t, db, map[plan.Key][]plan.Row{plan.PodKey("ns", "p"): {pod}})

	if now := s.Nbctl("--bare", "--columns=_uuid", "find", "logical_switch_port", "name=ns_p"); now == uuid || now == "" {
		t.Errorf("row is still %s of the earlier pod, want another", now)
	}
}

func TestCommitDeletes(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	commit(t, db, topology())

	removed := map[plan.Key][]plan.Row{}

	for k := range topology() {
		if k != plan.ClusterKey() {
			removed[k] = nil
		}
	}

	commit(t, db, removed)

	owners, unknown, err := db.Owners()
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]plan.Key{plan.ClusterKey()}, owners); diff != "" || unknown != nil {
		t.Errorf("owners (-want +got), unknown %v:\n%s", unknown, diff)
	}

	for _, table := range []string{"logical_switch", "logical_switch_port", "logical_router_port", "nat", "load_balancer", "logical_router_policy", "logical_router_static_route", "bfd", "static_mac_binding"} {
		if got := s.Nbctl("--bare", "--columns=_uuid", "list", table); got != "" {
			t.Errorf("remaining rows of %s: %s", table, got)
		}
	}

	if got := s.Nbctl("--bare", "--columns=ports,nat,policies,static_routes", "list", "logical_router"); strings.TrimSpace(got) != "" {
		t.Errorf("remaining rows of the router: %s", got)
	}
}

func TestCommitKeepsForeignRows(t *testing.T) {
	s := nbtest.Start(t)
	s.Nbctl("ls-add", "n1", "--", "lsp-add", "n1", "theirs", "--", "lr-add", "other")
	s.Nbctl("--", "create", "static_mac_binding", "logical_port=theirs", "ip=10.0.0.4", `mac="0a:58:0a:00:00:04"`)
	db := open(t, s)
	commit(t, db, topology())

	switches := s.Nbctl("--bare", "--columns=_uuid", "find", "logical_switch", "name=n1", "external_ids:ovn-ebpf.io/owner=node/n1")
	s.Nbctl("lsp-add", switches, "guest", "--", "set", "logical_switch_port", "guest", "external_ids:who=them")
	s.Nbctl("lr-route-add", "lr", "203.0.113.0/24", "10.0.0.7", "--", "lr-lb-add", "other", "own")

	all := topology()
	all[plan.PodKey("ns", "p")] = nil
	n1 := all[plan.NodeKey("n1")]
	all[plan.NodeKey("n1")] = slices.DeleteFunc(n1, func(r plan.Row) bool { return r.Table() == "Logical_Router_Static_Route" })
	commit(t, db, all)

	for what, got := range map[string]string{
		"our load balancer in theirs": s.Nbctl("--bare", "--columns=load_balancer", "list", "logical_router", "other"),
		"port in their switch":        s.Nbctl("--bare", "--columns=name", "find", "logical_switch_port", "name=theirs"),
		"their static binding":        s.Nbctl("--bare", "--columns=_uuid", "find", "static_mac_binding", "logical_port=theirs"),
		"port in our switch":          s.Nbctl("--bare", "--columns=name", "find", "logical_switch_port", "name=guest"),
		"their router":                s.Nbctl("--bare", "--columns=name", "find", "logical_router", "name=other"),
		"route in our router":         s.Nbctl("--bare", "--columns=_uuid", "find", "logical_router_static_route", "ip_prefix=203.0.113.0/24"),
	} {
		if got == "" {
			t.Errorf("%s was deleted", what)
		}
	}

	if got := s.Nbctl("--bare", "--columns=ip_prefix", "list", "logical_router_static_route"); got != "203.0.113.0/24" {
		t.Errorf("routes left: %q, want only the foreign one", got)
	}
}

// TestCommitRepairsMembership checks that a member is restored after another client has removed it
// from a weak set.
func TestCommitRepairsMembership(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	commit(t, db, topology())
	s.Nbctl("clear", "load_balancer_group", "group", "load_balancer")
	nbtest.Eventually(t, "load balancer is a member again", func() bool {
		commit(t, db, topology())
		return s.Nbctl("--bare", "--columns=load_balancer", "list", "load_balancer_group") != ""
	})
}

// TestCommitMovesMembership checks that a moved load balancer leaves its old place and others in
// the same columns stay.
func TestCommitMovesMembership(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	commit(t, db, topology())
	s.Nbctl("lb-add", "theirs", "192.0.2.9:80", "10.0.0.3:80", "--", "ls-lb-add", "n1", "theirs")

	rows := topology()[plan.ServiceKey("ns", "s")]
	own := rows[1].(plan.LoadBalancer)
	own.Switches, own.Groups = nil, []string{"group"}
	rows[1] = own
	want := map[plan.Key][]plan.Row{plan.ServiceKey("ns", "s"): rows}
	commit(t, db, want)

	uuid := func(name string) string {
		return s.Nbctl("--bare", "--columns=_uuid", "find", "load_balancer", "name="+name)
	}
	for what, tt := range map[string]struct{ got, want string }{
		"the switch": {s.Nbctl("--bare", "--columns=load_balancer", "find", "logical_switch", "name=n1"), uuid("theirs")},
		"the router": {s.Nbctl("--bare", "--columns=load_balancer", "find", "logical_router", "name=lr"), uuid("own")},
	} {
		if tt.got != tt.want {
			t.Errorf("load balancers of %s: %q, want %q", what, tt.got, tt.want)
		}
	}

	if got := s.Nbctl("--bare", "--columns=load_balancer", "list", "load_balancer_group"); !strings.Contains(got, uuid("own")) || !strings.Contains(got, uuid("lb")) {
		t.Errorf("load balancers of the group: %q, want both", got)
	}

	n := db.Stats().Transactions
	commit(t, db, want)

	if got := db.Stats().Transactions; got != n {
		t.Errorf("commit of the same rows wrote %d transactions, want 0", got-n)
	}
}

func TestCommitIsolatesBadKeys(t *testing.T) {
	s := nbtest.Start(t)
	s.Nbctl("ls-add", "theirs", "--", "lsp-add", "theirs", "ns_taken")
	db := open(t, s)
	all := topology()
	port := func(sw, name string) []plan.Row {
		return []plan.Row{plan.LogicalSwitchPort{Switch: sw, Name: name}}
	}
	taken, orphan := plan.PodKey("ns", "taken"), plan.PodKey("ns", "orphan")
	all[taken] = port("n1", "ns_taken") // names are unique in the whole table

	all[orphan] = port("nowhere", "ns_orphan")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		all[plan.PodKey("ns", name)] = port("n1", "ns_"+name)
	}

	errs := db.Commit(t.Context(), all)

	var failed []plan.Key
	for k := range errs {
		failed = append(failed, k)
	}

	slices.SortFunc(failed, plan.Key.Compare)

	if diff := cmp.Diff([]plan.Key{orphan, taken}, failed); diff != "" {
		t.Errorf("failed keys (-want +got): %v\n%s", errs, diff)
	}

	for k, text := range map[plan.Key]string{orphan: `Logical_Switch "nowhere"`, taken: "ns_taken"} {
		if errs[k] != nil && !strings.Contains(errs[k].Error(), text) {
			t.Errorf("error of %s: %v, want it to name %s", k, errs[k], text)
		}
	}

	owners, _, err := db.Owners()
	if err != nil {
		t.Fatal(err)
	}

	if len(owners) != len(all)-2 {
		t.Errorf("owners: %v, want all but the two that failed", owners)
	}
}

func TestReconnect(t *testing.T) {
	s := nbtest.Start(t)
	db := open(t, s)
	commit(t, db, topology())
	s.Kill()
	nbtest.Eventually(t, "disconnect detected", func() bool { return db.Ready() != nil })

	if got := db.Ready().Error(); !strings.Contains(got, s.Endpoint) {
		t.Errorf("Ready: %s, want it to name %s", got, s.Endpoint)
	}

	if errs := db.Commit(t.Context(), topology()); len(errs) != len(topology()) {
		t.Errorf("commit without connection: %v, want an error for each key", errs)
	}

	s.Run()
	<-db.Connected()
	n := db.Stats().Transactions
	commit(t, db, topology())

	if got := db.Stats().Transactions; got != n {
		t.Errorf("commit after reconnecting wrote %d transactions, want 0", got-n)
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"unix:/run/ovn/ovnnb_db.sock":            "",
		"tcp:10.0.0.1:6641,tcp:10.0.0.2:6641":    "",
		"tcp:10.0.0.1:6641, tcp:[fd00::1]:6641":  "",
		"":                                       `""`,
		"10.0.0.1:6641":                          `"10.0.0.1:6641"`,
		"tcp:10.0.0.1:6641,ssl:10.0.0.1":         `"ssl:10.0.0.1"`,
		"tcp:10.0.0.1:6641,http://10.0.0.2:6641": `"http://10.0.0.2:6641"`,
	} {
		_, err := nb.Parse(in)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): error %v, want one with %q", in, err, want)
		}
	}
}

func TestOnChange(t *testing.T) {
	s := nbtest.Start(t)
	db := nb.New([]string{s.Endpoint}, slog.New(slog.DiscardHandler))
	changed := make(chan plan.Key, 100)

	db.OnChange(func(k plan.Key) { changed <- k })
	run(t, db)
	commit(t, db, topology())
	// Changes and deletions of this process are not reported.
	pod := topology()[plan.PodKey("ns", "p")][0].(plan.LogicalSwitchPort)
	commit(t, db, map[plan.Key][]plan.Row{
		plan.PodKey("ns", "q"):    {plan.LogicalSwitchPort{Switch: "n1", Name: "ns_q"}},
		plan.PodKey("ns", "r"):    {plan.LogicalSwitchPort{Switch: "n1", Name: "ns_r", Groups: []string{"own", "other"}}},
		plan.SelectorKey("own"):   {plan.PortGroup{Name: "own"}},
		plan.SelectorKey("other"): {plan.PortGroup{Name: "other"}},
	})
	commit(t, db, map[plan.Key][]plan.Row{plan.SelectorKey("own"): nil})

	pod.Addresses = nil
	commit(t, db, map[plan.Key][]plan.Row{plan.PodKey("ns", "p"): {pod}})
	commit(t, db, map[plan.Key][]plan.Row{plan.PodKey("ns", "q"): nil})

	for _, tt := range []struct {
		name string
		cmd  []string
		want plan.Key
	}{
		{"load balancer removed from its group", []string{"clear", "load_balancer_group", "group", "load_balancer"}, plan.ServiceKey("ns", "s")},
		{"a column of northd, then a planned one", []string{"lsp-set-enabled", "ns_p", "enabled", "--", "set", "logical_router", "lr", "options:a=c"}, plan.ClusterKey()},
		{"port deleted", []string{"lsp-del", "stor-n1"}, plan.NodeKey("n1")},
		{"foreign port added and deleted, then load balancer deleted", []string{"lsp-add", "n1", "x", "--", "lsp-del", "x", "--", "lb-del", "lb"}, plan.ServiceKey("ns", "s")},
	} {
		s.Nbctl(tt.cmd...)

		if got := <-changed; got != tt.want {
			t.Errorf("%s: change of %s, want %s", tt.name, got, tt.want)
		}
	}

	s.Nbctl("pg-del", "other")

	if group, member := <-changed, <-changed; group != plan.SelectorKey("other") || member != plan.PodKey("ns", "r") {
		t.Errorf("port group deleted: changes of %s and %s, want its owner and its port's", group, member)
	}

	commit(t, db, map[plan.Key][]plan.Row{plan.NodeKey("n1"): nil}) // the switch has a load balancer of the Service
	nbtest.Eventually(t, "the Service's change after its switch was deleted", func() bool {
		select {
		case k := <-changed:
			return k == plan.ServiceKey("ns", "s")
		default:
			return false
		}
	})
}

// TestCommitPrunesRowsOfOtherReplicas checks that rows of another replica are deleted with their owner, in
// tables where this replica has never written.
func TestCommitPrunesRowsOfOtherReplicas(t *testing.T) {
	s := nbtest.Start(t)

	db, other := open(t, s), open(t, s)
	if _, _, err := db.Owners(); err != nil {
		t.Fatal(err)
	}

	commit(t, db, map[plan.Key][]plan.Row{plan.NodeKey("n1"): {plan.LogicalSwitch{Name: "n1"}}})
	commit(t, other, topology())
	nbtest.Eventually(t, "all rows deleted", func() bool {
		owners, _, err := db.Owners()
		if err != nil {
			t.Fatal(err)
		}

		want := map[plan.Key][]plan.Row{}
		for _, k := range owners {
			want[k] = nil
		}

		commit(t, db, want)

		return s.Nbctl("--bare", "--columns=_uuid", "list", "logical_switch_port") == "" && s.Nbctl("--bare", "--columns=_uuid", "list", "load_balancer") == ""
	})
}
