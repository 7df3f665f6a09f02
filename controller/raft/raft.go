package raft

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
)

// Database is one of OVN's, and where its servers are.
type Database struct {
	Name      string // OVN_Northbound
	Endpoints []string
	TLS       nb.TLS
	Control   string // of the server of this machine, if there is one
}

// Northbound and Southbound are the databases with OVN's own places of control sockets.
func Northbound(endpoints []string, files nb.TLS) Database {
	return Database{"OVN_Northbound", endpoints, files, "/run/ovn/ovnnb_db.ctl"}
}

// Southbound is as Northbound.
func Southbound(endpoints []string, files nb.TLS) Database {
	return Database{"OVN_Southbound", endpoints, files, "/run/ovn/ovnsb_db.ctl"}
}

// Server is what one server says of itself.
type Server struct {
	Endpoint    string
	Err         error // it does not answer: nothing else is known
	Clustered   bool  // what follows is of a cluster's
	Cluster, ID string
	Leader      bool
	Connected   bool   // to a majority
	Index       int    // of the log's entry that clients see
	Local       *Local // nil: its control socket is not here
	Size        int64  // of its file; 0: not known
}

// Local is what a server's control socket tells.
type Local struct {
	ID                       string
	Role                     string // leader, follower, candidate
	Term                     int
	First, Next              int // entries of the log
	NotCommitted, NotApplied int
	Servers                  int // members, as it knows
}

// Ask asks all servers at once; the answers are in the order of the endpoints.
func (d Database) Ask(ctx context.Context) []Server {
	out := make([]Server, len(d.Endpoints))
	var group sync.WaitGroup
	for i, e := range d.Endpoints {
		group.Go(func() { out[i] = d.ask(ctx, e) })
	}
	group.Wait()
	return out
}

func (d Database) ask(ctx context.Context, endpoint string) Server {
	s, err := d.askServer(ctx, endpoint)
	s.Endpoint = endpoint
	if err != nil {
		s.Err = fmt.Errorf("ask %s at %s: %w", d.Name, endpoint, err)
		return s
	}
	control, own := d.Control, false
	if socket, is := strings.CutPrefix(endpoint, "unix:"); is {
		control, own = strings.TrimSuffix(socket, filepath.Ext(socket))+".ctl", true
	}
	if s.Clustered {
		// Another server's, or none: then this one's is not here.
		local, err := askControl(ctx, control, d.Name)
		if err == nil && local.ID == s.ID {
			s.Local, own = &local, true
		}
	}
	if own {
		s.Size = size(control)
	}
	return s
}

// size is that of the file beside the control socket, or where OVN has its files.
func size(control string) int64 {
	name := strings.TrimSuffix(filepath.Base(control), ".ctl") + ".db"
	for _, dir := range []string{filepath.Dir(control), "/var/lib/ovn", "/etc/ovn"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return info.Size()
		}
	}
	return 0
}

// askServer reads the row of the database _Server.
func (d Database) askServer(ctx context.Context, endpoint string) (Server, error) {
	files, err := d.TLS.Config([]string{endpoint})
	if err != nil {
		return Server{}, err
	}
	conn, err := dial(ctx, endpoint, files)
	if err != nil {
		return Server{}, err
	}
	defer conn.Close()
	var results []struct {
		Error, Details string
		Rows           []struct {
			Model             string
			Leader, Connected bool
			Cid, Sid, Index   json.RawMessage
		}
	}
	err = call(ctx, conn, "transact", []any{"_Server", map[string]any{
		"op": "select", "table": "Database", "where": []any{[]any{"name", "==", d.Name}},
		"columns": []string{"model", "leader", "connected", "cid", "sid", "index"},
	}}, &results)
	switch {
	case err != nil:
		return Server{}, err
	case len(results) != 1 || results[0].Error != "":
		return Server{}, fmt.Errorf("select: %+v", results)
	case len(results[0].Rows) != 1:
		return Server{}, errors.New("it has no such database")
	}
	row := results[0].Rows[0]
	s := Server{Clustered: row.Model == "clustered", Leader: row.Leader, Connected: row.Connected, Cluster: uuid(row.Cid), ID: uuid(row.Sid)}
	_ = json.Unmarshal(row.Index, &s.Index) // before the first entry it is an empty set
	return s, nil
}

// uuid is a column's value; "" for none.
func uuid(column json.RawMessage) string {
	var pair [2]string
	if json.Unmarshal(column, &pair) != nil || pair[0] != "uuid" {
		return ""
	}
	return pair[1]
}

func askControl(ctx context.Context, path, name string) (Local, error) {
	if path == "" {
		return Local{}, errors.New("no control socket is known")
	}
	conn, err := dial(ctx, "unix:"+path, nil)
	if err != nil {
		return Local{}, err
	}
	defer conn.Close()
	var status string
	if err := call(ctx, conn, "cluster/status", []string{name}, &status); err != nil {
		return Local{}, err
	}
	return parse(status)
}
