package nb_test

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// without removes tables and columns, named as Table or Table.column.
func without(names ...string) func(map[string]any) {
	return func(tables map[string]any) {
		for _, name := range names {
			table, column, isColumn := strings.Cut(name, ".")
			if !isColumn {
				delete(tables, table)
				continue
			}

			delete(tables[table].(map[string]any)["columns"].(map[string]any), column)
		}
	}
}

// TestOlderSchema checks the schema of an older OVN. Everything that it has a place for is written,
// the missing parts are named, and the rest is written after an upgrade.
func TestOlderSchema(t *testing.T) {
	// Parts of the 23.03 schema that OVN 22.03 lacks, and one column that plans use.
	s := nbtest.StartWith(t, without(
		"Static_MAC_Binding", "Chassis_Template_Var", "Logical_Switch_Port.mirror_rules", "Mirror", "NAT.gateway_port", "Copp.name",
		"Logical_Router.copp", "Logical_Switch.copp", "Copp", "Meter.fair",
	))

	db := open(t, s)
	if diff := cmp.Diff([]string{"Meter.fair", "Static_MAC_Binding"}, db.Missing()); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}

	all := topology()
	band := plan.MeterBand{Meter: "m", Action: "drop", Rate: 20}
	all[plan.ClusterKey()] = append(all[plan.ClusterKey()], plan.Meter{Name: "m", Unit: "pktps", Fair: true, Bands: []string{band.ID()}}, band)
	commit(t, db, all)
	commit(t, db, all)

	if got := db.Stats().Transactions; got != 1 {
		t.Errorf("%d transactions, want 1: the second commit has the same rows", got)
	}

	complete := nbtest.Start(t)
	commit(t, open(t, complete), all)
	want := slices.DeleteFunc(complete.Normal(), func(line string) bool { return strings.HasPrefix(line, "Static_MAC_Binding ") })

	have := s.Normal()
	if len(have) < 30 || !slices.Contains(have, want[0]) {
		t.Fatalf("%d lines: %s", len(have), have)
	}

	for _, line := range have {
		if !slices.Contains(want, line) {
			t.Errorf("only in this database: %s", line)
		}
	}

	s.Convert()
	<-db.Connected()

	if got := db.Missing(); len(got) > 0 {
		t.Errorf("missing after the upgrade: %s", got)
	}

	commit(t, db, all)

	if diff := cmp.Diff(complete.Normal(), s.Normal()); diff != "" {
		t.Errorf("after the upgrade (-new database +upgraded database):\n%s", diff)
	}

	commit(t, db, map[plan.Key][]plan.Row{plan.NodeKey("n1"): nil, plan.PodKey("ns", "p"): nil})

	if got := s.Nbctl("--bare", "--columns=_uuid", "list", "static_mac_binding"); got != "" {
		t.Errorf("remaining: %s", got)
	}
}

// TestPodPortsOfOlderSchema: pods' ports are read from a database whose rows lack a column, as OVN
// 23.03's do. A new leader without them would believe forged annotations.
func TestPodPortsOfOlderSchema(t *testing.T) {
	ports := func(s *nbtest.Server) []nb.PodPort {
		t.Helper()
		db := open(t, s)
		commit(t, db, topology())

		got, err := db.PodPorts()
		if err != nil {
			t.Fatal(err)
		}

		slices.SortFunc(got, func(a, b nb.PodPort) int { return strings.Compare(a.Pod.String(), b.Pod.String()) })

		return got
	}

	want := ports(nbtest.Start(t))
	if len(want) == 0 || want[0].MAC == nil || len(want[0].Addresses) == 0 {
		t.Fatalf("ports %+v, want some with addresses", want)
	}

	if diff := cmp.Diff(want, ports(nbtest.StartWith(t, without("Logical_Switch_Port.peer"))), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("ports (-25.03 +without a column):\n%s", diff)
	}
}

// TestMuchOlderSchema checks a schema without the tables or columns that hold most rows. The owners
// of those rows fail with an error that names them; other owners do not fail.
func TestMuchOlderSchema(t *testing.T) {
	withoutPolicies := []string{
		`node/n1: refer to Logical_Router.policies "lr": no such row`,
		`pod/ns/p: refer to Logical_Switch "n1": no such row`,
		`service/ns/s: refer to Logical_Switch "n1": no such row`,
	}
	for _, c := range []struct {
		name    string
		change  func(map[string]any)
		missing []string
		failed  []string
	}{
		{"groups", without("Load_Balancer_Group", "Logical_Switch.load_balancer_group", "Logical_Router.load_balancer_group"), []string{
			"Load_Balancer_Group", "Logical_Router.load_balancer_group", "Logical_Switch.load_balancer_group",
		}, []string{
			`node/n1: refer to Load_Balancer_Group "group": no such row`,
			`pod/ns/p: refer to Logical_Switch "n1": no such row`,
			`service/ns/s: refer to Load_Balancer_Group.load_balancer "group": no such row`,
		}},
		{"policies", without("Logical_Router.policies"), []string{"Logical_Router.policies"}, withoutPolicies},
		{"other policies", func(tables map[string]any) { // columns of another type count as missing
			tables["Logical_Router"].(map[string]any)["columns"].(map[string]any)["policies"] = map[string]any{"type": "string"}
			tables["Logical_Router_Policy"].(map[string]any)["isRoot"] = true // otherwise a row could not exist without a reference
		}, []string{"Logical_Router.policies"}, withoutPolicies},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := nbtest.StartWith(t, c.change)
			db := open(t, s)

			var failed []string
			for k, err := range db.Commit(t.Context(), topology()) {
				failed = append(failed, k.String()+": "+err.Error())
			}

			slices.Sort(failed)

			if diff := cmp.Diff(c.failed, failed); diff != "" {
				t.Errorf("failed (-want +got):\n%s", diff)
			}

			if got := s.Nbctl("--bare", "--columns=name", "list", "address_set"); got != "set" {
				t.Errorf("address sets %q", got)
			}

			if diff := cmp.Diff(c.missing, db.Missing()); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewerSchema checks that additional tables and columns of a newer schema are left alone.
func TestNewerSchema(t *testing.T) {
	s := nbtest.StartWith(t, func(tables map[string]any) {
		text := map[string]any{"type": map[string]any{"key": "string", "min": 0, "max": "unlimited"}}
		for _, table := range []string{"Logical_Switch_Port", "Static_MAC_Binding", "Meter_Band"} {
			tables[table].(map[string]any)["columns"].(map[string]any)["newer"] = text
		}

		tables["Newest"] = map[string]any{"columns": map[string]any{"name": text}, "isRoot": true}
	})
	db := open(t, s)
	commit(t, db, topology())

	if got := db.Missing(); got != nil {
		t.Errorf("missing %s", got)
	}

	out, err := exec.Command("ovsdb-client", "transact", s.Endpoint, `["OVN_Northbound",
		{"op": "update", "table": "Logical_Switch_Port", "where": [["name", "==", "ns_p"]], "row": {"newer": "theirs"}},
		{"op": "insert", "table": "Newest", "row": {"name": "a"}}]`).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"count":1`) {
		t.Fatalf("write newer columns: %v: %s", err, out)
	}

	commit(t, db, topology())

	if got := db.Stats().Transactions; got != 1 {
		t.Errorf("%d transactions, want 1", got)
	}

	if !strings.Contains(s.Dump(), "theirs") {
		t.Errorf("newer column was cleared:\n%s", s.Dump())
	}
}
