package raft

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
)

// Database is one of OVN's databases, with the addresses of its servers.
type Database struct {
	Name      string // OVN_Northbound
	Endpoints []string
	TLS       nb.TLS
	Control   string // control socket of the server on this machine, if any
}

// Northbound returns the Northbound database, with OVN's default control socket.
func Northbound(endpoints []string, files nb.TLS) Database {
	return Database{"OVN_Northbound", endpoints, files, "/run/ovn/ovnnb_db.ctl"}
}

// Southbound returns the Southbound database, with OVN's default control socket.
func Southbound(endpoints []string, files nb.TLS) Database {
	return Database{"OVN_Southbound", endpoints, files, "/run/ovn/ovnsb_db.ctl"}
}

// Server is the state of one server, as it reports it.
type Server struct {
	Endpoint    string
	Err         error // why it did not answer; then all other fields are zero
	Clustered   bool  // the fields below are valid, except Size
	Cluster, ID string
	Leader      bool
	Connected   bool         // to a majority of the cluster
	Index       int          // of the log entry that clients see
	Local       *LocalStatus // nil if its control socket is not on this machine
	Size        int64        // of its file; 0 if unknown
}

// LocalStatus is the state that only a server's control socket reports.
type LocalStatus struct {
	ID                       string
	Role                     string // leader, follower, candidate
	Term                     int
	First, Next              int // indexes of log entries
	NotCommitted, NotApplied int
	Servers                  int // members that it knows
}

// Ask queries all servers concurrently. The result has the order of the endpoints.
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
		// The socket may be missing, or that of another server.
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

// size returns the size of the database's file, which is beside the control socket or in one of
// OVN's directories. It returns 0 if there is none.
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
	s := Server{
		Clustered: row.Model == "clustered",
		Leader:    row.Leader,
		Connected: row.Connected,
		Cluster:   uuid(row.Cid),
		ID:        uuid(row.Sid),
	}
	_ = json.Unmarshal(row.Index, &s.Index) // an empty set before the first entry

	return s, nil
}

// uuid returns the value of a column with at most one UUID, or "".
func uuid(column json.RawMessage) string {
	var pair [2]string
	if json.Unmarshal(column, &pair) != nil || pair[0] != "uuid" {
		return ""
	}

	return pair[1]
}

func askControl(ctx context.Context, path, name string) (LocalStatus, error) {
	if path == "" {
		return LocalStatus{}, errors.New("no control socket is known")
	}

	conn, err := dial(ctx, "unix:"+path, nil)
	if err != nil {
		return LocalStatus{}, err
	}
	defer conn.Close()

	var status string
	if err := call(ctx, conn, "cluster/status", []string{name}, &status); err != nil {
		return LocalStatus{}, err
	}

	return parse(status)
}

// parse reads the reply to cluster/status (ovsdb/raft.c of OVS).
func parse(status string) (LocalStatus, error) {
	var l LocalStatus

	members := false
	for line := range strings.Lines(status) {
		if members {
			if strings.HasPrefix(line, "    ") {
				l.Servers++
			}

			continue
		}

		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)

		var (
			n   int
			err error
		)

		switch key {
		case "Server ID": // short, then the whole in parentheses
			_, l.ID, _ = strings.Cut(strings.TrimSuffix(value, ")"), "(")
		case "Role":
			l.Role = value
		case "Term":
			n, err = fmt.Sscanf(value, "%d", &l.Term)
		case "Log":
			n, err = fmt.Sscanf(value, "[%d, %d]", &l.First, &l.Next)
		case "Entries not yet committed":
			n, err = fmt.Sscanf(value, "%d", &l.NotCommitted)
		case "Entries not yet applied":
			n, err = fmt.Sscanf(value, "%d", &l.NotApplied)
		case "Servers":
			members = true
		}

		if err != nil {
			return LocalStatus{}, fmt.Errorf("read cluster/status: line %q, %d numbers: %w",
				strings.TrimSpace(line), n, err)
		}
	}

	if l.ID == "" || l.Role == "" {
		return LocalStatus{}, fmt.Errorf("read cluster/status: no server in %.200q", status)
	}

	return l, nil
}

// dial connects to an OVSDB endpoint or, as unix:, to a control socket: both speak JSON-RPC.
func dial(ctx context.Context, endpoint string, files *tls.Config) (net.Conn, error) {
	kind, address, _ := strings.Cut(endpoint, ":")

	var d net.Dialer

	switch kind {
	case "unix":
		return d.DialContext(ctx, "unix", address)
	case "ssl":
		return (&tls.Dialer{NetDialer: &d, Config: files}).DialContext(ctx, "tcp", address)
	default:
		return d.DialContext(ctx, "tcp", address)
	}
}

// call sends one request and reads its reply. The connection must not be used again.
func call(ctx context.Context, conn net.Conn, method string, params, result any) error {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()

	const id = 1

	request, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	if err != nil {
		return err
	}

	if _, err := conn.Write(request); err != nil {
		return errors.Join(ctx.Err(), err)
	}

	in := json.NewDecoder(conn)

	for {
		var reply struct {
			ID     any
			Method string
			Result json.RawMessage
			Error  any
		}
		if err := in.Decode(&reply); err != nil {
			return errors.Join(ctx.Err(), err)
		}

		switch {
		case reply.Method != "" || reply.ID != float64(id): // a request of the server
		case reply.Error != nil:
			return fmt.Errorf("%s: %v", method, reply.Error)
		default:
			return json.Unmarshal(reply.Result, result)
		}
	}
}
