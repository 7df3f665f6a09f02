package nb_test

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

func claim(t *testing.T, db *nb.DB, holder string) nb.Term {
	t.Helper()

	term, err := db.Claim(t.Context(), holder)
	if err != nil {
		t.Fatal(err)
	}

	return term
}

// refused fails the test unless each key of a commit is refused because the term is over.
func refused(t *testing.T, what string, db *nb.DB, want map[plan.Key][]plan.Row) {
	t.Helper()

	before := db.Stats()

	errs := db.Commit(t.Context(), want)
	for k := range want {
		if !errors.Is(errs[k], nb.ErrFenced) {
			t.Errorf("%s, %s: error %v, want ErrFenced", what, k, errs[k])
		}
	}

	if after := db.Stats(); after.Transactions != before.Transactions+1 {
		t.Errorf("%s: %d transactions, want 1: a fenced batch is not divided", what, after.Transactions-before.Transactions)
	}
}

// TestTermFencesWrites checks that every kind of write of a leader whose term is over is refused
// and changes nothing.
func TestTermFencesWrites(t *testing.T) {
	s := nbtest.Start(t)
	old, next := open(t, s), open(t, s)
	first := claim(t, old, "old")
	commit(t, old, topology())

	second := claim(t, next, "next")
	if second.Number <= first.Number || second.Holder != "next" {
		t.Errorf("%s after %s", second, first)
	}

	changed := topology()
	changed[plan.ClusterKey()] = []plan.Row{plan.LogicalRouter{Name: "lr", Options: map[string]string{"a": "c"}}, plan.LoadBalancerGroup{Name: "group"}, plan.AddressSet{Name: "set"}}
	moved := plan.LogicalSwitchPort{Switch: "n1", Name: "ns_p", Incarnation: "u1", Addresses: []string{"0a:58:0a:00:00:04 10.0.0.4"}}
	before := s.Dump()

	for what, want := range map[string]map[plan.Key][]plan.Row{
		"insert":          {plan.NodeKey("n2"): {plan.LogicalSwitch{Name: "n2"}}},
		"insert and join": {plan.PodKey("ns", "q"): {plan.LogicalSwitchPort{Switch: "n1", Name: "ns_q"}}},
		"update":          {plan.ClusterKey(): changed[plan.ClusterKey()]},
		"update a port":   {plan.PodKey("ns", "p"): {moved}},
		"delete a port":   {plan.PodKey("ns", "p"): nil},
		"delete roots":    {plan.ServiceKey("ns", "s"): nil},
		"many":            {plan.NodeKey("n2"): {plan.LogicalSwitch{Name: "n2"}}, plan.NodeKey("n3"): {plan.LogicalSwitch{Name: "n3"}}, plan.PodKey("ns", "p"): nil},
	} {
		refused(t, what, old, want)
	}

	if diff := cmp.Diff(before, s.Dump()); diff != "" {
		t.Errorf("refused writes changed the database:\n%s", diff)
	}

	if err := old.Holds(t.Context()); !errors.Is(err, nb.ErrFenced) {
		t.Errorf("Holds of the old leader: %v", err)
	}

	if err := next.Holds(t.Context()); err != nil {
		t.Errorf("Holds of the leader: %v", err)
	}

	if now, err := old.Term(t.Context()); err != nil || *now != second {
		t.Errorf("the term is %v (%v), want %v", now, err, second)
	}

	commit(t, next, changed)

	if again := claim(t, old, "old"); again.Number <= second.Number {
		t.Errorf("%s after %s", again, second)
	}

	commit(t, old, topology())
	refused(t, "after the other's claim", next, switches("n4"))

	if owners, unknown, err := old.Owners(); err != nil || len(unknown) > 0 || len(owners) != len(topology()) {
		t.Errorf("owners %v, unknown %v (%v): want the term's row to have no owner", owners, unknown, err)
	}
}

// TestTermSurvivesTheDatabase checks that a leader recovers after the database loses its term. It
// is refused once, claims again, and the term number grows.
func TestTermSurvivesTheDatabase(t *testing.T) {
	for name, lose := range map[string]func(*nbtest.Server){
		"the row is deleted":           func(s *nbtest.Server) { s.Nbctl("destroy", "Address_Set", "ovn-ebpf-leader") },
		"its external_ids are cleared": func(s *nbtest.Server) { s.Nbctl("clear", "Address_Set", "ovn-ebpf-leader", "external_ids") },
		"its number is malformed": func(s *nbtest.Server) {
			s.Nbctl("set", "Address_Set", "ovn-ebpf-leader", "external_ids:ovn-ebpf.io/term=x")
		},
		"the database is new":  func(s *nbtest.Server) { s.Kill(); s.Empty(); s.Run() },
		"a backup is restored": func(s *nbtest.Server) { s.Kill(); s.Restore(); s.Run() },
	} {
		t.Run(name, func(t *testing.T) {
			s := nbtest.Start(t)
			s.Backup()
			db := open(t, s)
			claim(t, db, "a")
			before := claim(t, db, "a")
			commit(t, db, topology())
			generation := db.Generation()

			lose(s)

			if strings.Contains(name, "database") || strings.Contains(name, "backup") {
				nbtest.Eventually(t, "connected again", func() bool { return db.Generation() > generation && db.Ready() == nil })
			}

			refused(t, name, db, switches("n9"))

			if after := claim(t, db, "a"); after.Number <= before.Number {
				t.Errorf("%s after %s", after, before)
			}

			commit(t, db, switches("n9"))
		})
	}
}

// TestTermOfBackupEndsAtNextClaim checks a backup with an earlier term: its leader can write only
// until the next claim.
func TestTermOfBackupEndsAtNextClaim(t *testing.T) {
	s := nbtest.Start(t)
	old, next := open(t, s), open(t, s)
	first := claim(t, old, "old")

	s.Kill()
	s.Backup()
	s.Run()

	generations := func() bool {
		return old.Generation() > 1 && next.Generation() > 1 && old.Ready() == nil && next.Ready() == nil
	}
	nbtest.Eventually(t, "connected again", generations)
	second := claim(t, next, "next")

	s.Kill()
	s.Restore()
	s.Run()
	nbtest.Eventually(t, "connected again", func() bool { return old.Generation() > 2 && next.Generation() > 2 && generations() })
	refused(t, "the term is not in the backup", next, switches("n1"))

	if third := claim(t, next, "next"); third.Number <= second.Number || third.Number <= first.Number {
		t.Errorf("%s after %s and %s", third, first, second)
	}

	refused(t, "leader of the backup", old, switches("n1"))
	commit(t, next, switches("n1"))
}

// TestConcurrentClaimsHaveOneWinner checks that one of several concurrent claims holds the term,
// and that each number is used once.
func TestConcurrentClaimsHaveOneWinner(t *testing.T) {
	s := nbtest.Start(t)

	dbs := make([]*nb.DB, 4)
	for i := range dbs {
		dbs[i] = open(t, s)
	}

	var mu sync.Mutex

	numbers := map[uint64]string{}

	var all sync.WaitGroup
	for i, db := range dbs {
		all.Go(func() {
			for range 20 {
				term, err := db.Claim(t.Context(), fmt.Sprint("replica", i))
				if errors.Is(err, nb.ErrFenced) {
					continue // lost to other claims in all attempts
				}

				mu.Lock()
				if other := numbers[term.Number]; err != nil || other != "" {
					t.Errorf("%v: %v; the number was already used by %q", term, err, other)
				}

				numbers[term.Number] = term.Holder
				mu.Unlock()
			}
		})
	}

	all.Wait()

	hold := 0

	for _, db := range dbs {
		if db.Holds(t.Context()) == nil {
			hold++
		}
	}

	if rows := s.Nbctl("--bare", "--columns=name", "list", "Address_Set"); hold != 1 || rows != "ovn-ebpf-leader" {
		t.Errorf("%d holders of the term, rows %q", hold, rows)
	}
}

// TestTermSurvivesRaftLeaderDeath checks that the term belongs to the whole raft cluster: every
// member reports it, also after the death of the leader. An OVSDB lock, in contrast, belongs to one
// server.
func TestTermSurvivesRaftLeaderDeath(t *testing.T) {
	members := nbtest.StartRaft(t)

	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoint)
	}

	old, next := dial(t, endpoints, nb.TLS{}), dial(t, endpoints, nb.TLS{})
	claims := func(db *nb.DB, holder string) (term nb.Term) {
		nbtest.Eventually(t, holder+" claims", func() (ok bool) {
			var err error

			term, err = db.Claim(t.Context(), holder)

			return err == nil
		})

		return term
	}
	answers := func(db *nb.DB, want error) {
		t.Helper()

		name := "refused"
		if want == nil {
			name = fmt.Sprint("n", old.Stats().Transactions)
		}

		nbtest.Eventually(t, fmt.Sprintf("commit: %v", want), func() bool {
			return errors.Is(db.Commit(t.Context(), switches(name))[plan.NodeKey(name)], want)
		})
	}
	first := claims(old, "old")
	answers(old, nil)
	nbtest.Leader(t, members).Kill()

	second := claims(next, "next")
	if second.Number <= first.Number {
		t.Errorf("%s after %s", second, first)
	}

	answers(old, nb.ErrFenced)
	answers(next, nil)

	for _, m := range members {
		if m.Status() == "" {
			m.Start()
		}

		nbtest.Eventually(t, "every member to have the term", func() bool {
			out, err := exec.Command("ovn-nbctl", "--no-leader-only", "--db="+m.Endpoint, "--bare", "--columns=external_ids", "find", "Address_Set", "name=ovn-ebpf-leader").Output()
			return err == nil && strings.Contains(string(out), fmt.Sprintf("ovn-ebpf.io/term=%d", second.Number))
		})
	}

	answers(old, nb.ErrFenced)
}

// TestTermChangeCausesNoRecompute checks that northd computes nothing when the term changes, and
// copies only the name of its row, once.
func TestTermChangeCausesNoRecompute(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	ovn.AddChassis("node1")
	db := open(t, ovn.Server)
	commit(t, db, topology())
	ovn.Sync()
	empty := ovn.NormalSouthbound()

	claim(t, db, "a")
	nbtest.Eventually(t, "northd to see the row", func() bool { return ovn.AddressSet("ovn-ebpf-leader") != "" })
	// northd receives its own writes, too, and may process them in the first rounds.
	nbtest.Eventually(t, "ten claims without a computation", func() bool {
		ovn.ClearStats()

		for range 10 {
			claim(t, db, "a")
		}

		ovn.Recomputes() // the second reply is from a round that began after the last claim

		return ovn.Recomputes() == 0
	})
	commit(t, db, switches("n2"))
	ovn.Sync()

	if runs := ovn.Recomputes(); runs == 0 {
		t.Error("a new switch is not counted as a computation")
	}

	commit(t, db, map[plan.Key][]plan.Row{plan.NodeKey("n2"): nil})
	ovn.Sync()

	ours := func(line string) bool { // sync increments a counter in SB_Global
		return strings.HasPrefix(line, "SB_Global") || strings.HasPrefix(line, "Address_Set(ovn-ebpf-leader)")
	}
	if diff := cmp.Diff(slices.DeleteFunc(empty, ours), slices.DeleteFunc(ovn.NormalSouthbound(), ours)); diff != "" {
		t.Errorf("Southbound database (-without a term +with a term):\n%s", diff)
	}
}
