package raft

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
)

// cluster is three real servers, as remote ones and as this machine's.
type cluster struct {
	members       []*nbtest.Member
	local, remote *Collector
}

func newCluster(t *testing.T) cluster {
	c := cluster{members: nbtest.StartRaft(t)}

	var here, there []string
	for _, m := range c.members {
		here, there = append(here, m.Endpoint), append(there, m.Remote)
	}

	log := slog.New(slog.DiscardHandler)
	c.local = NewCollector(log, Northbound(here, nb.TLS{}))
	// Of the remote ones the first's control socket is here.
	d := Northbound(there, nb.TLS{})
	d.Control = strings.TrimSuffix(strings.TrimPrefix(here[0], "unix:"), ".sock") + ".ctl"
	c.remote = NewCollector(log, d)

	return c
}

// series are a collector's, by name and labels but the database's.
func series(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]float64{}

	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "ovn_db_")
			for _, l := range m.GetLabel() {
				if l.GetName() != "db_name" {
					name += " " + l.GetValue()
				}
			}

			out[name] = m.GetGauge().GetValue()
		}
	}

	return out
}

// await waits until the collector has these values; -1 stands for none.
func await(t *testing.T, what string, c prometheus.Collector, want map[string]float64) map[string]float64 {
	t.Helper()

	var got map[string]float64

	t.Cleanup(func() {
		if t.Failed() && got != nil {
			t.Logf("%s: at last %v", what, got)
		}
	})
	nbtest.Eventually(t, what, func() bool {
		got = series(t, c)
		for name, v := range want {
			if have, there := got[name]; there != (v >= 0) || there && have != v {
				return false
			}
		}

		return true
	})

	last := got
	got = nil

	return last
}

// Each server is told apart; a member that ends, and a cluster without a majority, show.
func TestCluster(t *testing.T) {
	c := newCluster(t)
	leader := nbtest.Leader(t, c.members)
	want := map[string]float64{}

	for _, m := range c.members {
		for _, name := range []string{"up", "cluster_server_connected"} {
			want[name+" "+m.Endpoint] = 1
		}

		want["cluster_servers "+m.Endpoint] = 3
		want["cluster_server_role "+m.Endpoint+" follower"] = 1
	}

	delete(want, "cluster_server_role "+leader.Endpoint+" follower")
	want["cluster_server_role "+leader.Endpoint+" leader"] = 1
	got := await(t, "three members", c.local, want)
	ids, clusters := map[string]bool{}, map[string]bool{}

	for name := range got {
		var endpoint, cluster, id string
		if n, _ := fmt.Sscanf(name, "cluster_server_id %s %s %s", &cluster, &endpoint, &id); n == 3 {
			ids[id], clusters[cluster] = true, true
		}
	}

	if len(ids) != 3 || len(clusters) != 1 {
		t.Errorf("%d servers, %d clusters in %v", len(ids), len(clusters), got)
	}

	for _, m := range c.members {
		if got["db_size_bytes "+m.Endpoint] < 1000 || got["cluster_log_entry_index "+m.Endpoint] < 1 || got["cluster_log_index_next "+m.Endpoint] <= got["cluster_log_index_start "+m.Endpoint] {
			t.Errorf("%s: %v", m.Endpoint, got)
		}
	}

	term := got["cluster_term "+leader.Endpoint]

	leader.Kill()
	await(t, "the leader has ended", c.local, map[string]float64{
		"up " + leader.Endpoint: 0, "cluster_server_connected " + leader.Endpoint: -1, "cluster_server_role " + leader.Endpoint + " leader": -1, "db_size_bytes " + leader.Endpoint: -1,
	})
	next := nbtest.Leader(t, c.members)

	got = await(t, "another leads", c.local, map[string]float64{"cluster_server_role " + next.Endpoint + " leader": 1, "cluster_server_connected " + next.Endpoint: 1})
	if now := got["cluster_term "+next.Endpoint]; now <= term {
		t.Errorf("term %v after an election, %v before it", now, term)
	}

	next.Kill()

	var last *nbtest.Member

	for _, m := range c.members {
		if m != leader && m != next {
			last = m
		}
	}

	await(t, "one of three is no majority", c.local, map[string]float64{
		"up " + last.Endpoint: 1, "cluster_server_connected " + last.Endpoint: 0, "cluster_server_role " + last.Endpoint + " leader": -1, "up " + next.Endpoint: 0,
	})
	leader.Start()
	await(t, "two of three are", c.local, map[string]float64{"cluster_server_connected " + last.Endpoint: 1, "cluster_server_connected " + leader.Endpoint: 1})
}

// A server elsewhere tells what its clients need; more the one whose control socket is here.
func TestRemote(t *testing.T) {
	c := newCluster(t)
	want := map[string]float64{}

	for i, m := range c.members {
		for _, name := range []string{"up", "cluster_server_connected"} {
			want[name+" "+m.Remote] = 1
		}

		want["cluster_servers "+m.Remote], want["db_size_bytes "+m.Remote] = -1, -1
		if i == 0 {
			want["cluster_servers "+m.Remote] = 3
			delete(want, "db_size_bytes "+m.Remote)
		}
	}

	got := await(t, "three members", c.remote, want)
	if got["db_size_bytes "+c.members[0].Remote] < 1000 {
		t.Errorf("size of the server that is here: %v", got)
	}

	first := c.members[0].Remote
	if got["cluster_log_entry_index "+first] < 1 {
		t.Errorf("%v", got)
	}
}

// A standalone server has no cluster; one without this database is no server of it.
func TestStandalone(t *testing.T) {
	s := nbtest.Start(t)
	if got := series(t, NewCollector(slog.New(slog.DiscardHandler), Northbound([]string{s.Endpoint}, nb.TLS{}))); got["up "+s.Endpoint] != 1 || len(got) > 2 {
		t.Errorf("%v", got)
	}

	servers := Southbound([]string{s.Endpoint}, nb.TLS{}).Status(t.Context())
	if len(servers) != 1 || servers[0].Err == nil || !strings.Contains(servers[0].Err.Error(), "OVN_Southbound") || !strings.Contains(servers[0].Err.Error(), "no such database") {
		t.Errorf("%+v", servers)
	}
}

// A server that takes a connection and says nothing is waited for no longer than asked.
func TestSilent(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()

		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()

		if _, err := conn.Read(make([]byte, 1)); err == nil { // the request, so dialling has ended
			cancel()
			<-t.Context().Done()
		}
	}()

	servers := Northbound([]string{"unix:" + l.Addr().String()}, nb.TLS{}).Status(ctx)
	if servers[0].Err == nil || !strings.Contains(servers[0].Err.Error(), "context canceled") {
		t.Errorf("%+v", servers)
	}
}

func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(NewCollector(slog.New(slog.DiscardHandler), Northbound([]string{nbtest.Start(t).Endpoint}, nb.TLS{})))
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, error %v", problems, err)
	}
}

const status = `4e4d
Name: OVN_Northbound
Cluster ID: 9b12 (9b12ee2f-74d2-41d3-80ca-8d1e37a86101)
Server ID: 4e4d (4e4df89d-fef2-4780-a1fe-8547b55a97d3)
Address: tcp:127.0.0.1:16699
Status: cluster member
Role: candidate
Term: 7
Log: [2, 41]
Entries not yet committed: 3
Entries not yet applied: 4
Connections: ->0000 <-1234
Servers:
    4e4d (4e4d at tcp:127.0.0.1:16699) (self) next_index=2 match_index=2
    1234 (1234 at tcp:127.0.0.1:16698) last msg 300 ms ago
`

func TestParseClusterStatus(t *testing.T) {
	got, err := parseClusterStatus(status)

	want := LocalStatus{ID: "4e4df89d-fef2-4780-a1fe-8547b55a97d3", Role: "candidate", Term: 7, First: 2, Next: 41, NotCommitted: 3, NotApplied: 4, Servers: 2}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v %s", err, diff)
	}

	for _, bad := range []string{"", "no such database", strings.Replace(status, "Term: 7", "Term: x", 1)} {
		if got, err := parseClusterStatus(bad); err == nil {
			t.Errorf("%.20q is %+v", bad, got)
		}
	}
}

func FuzzParseClusterStatus(f *testing.F) {
	f.Add(status)
	f.Fuzz(func(t *testing.T, s string) {
		if l, err := parseClusterStatus(s); err == nil && (l.ID == "" || l.Role == "") {
			t.Errorf("%q is %+v", s, l)
		}
	})
}
