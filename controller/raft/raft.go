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
	Name      string   // OVN_Northbound or OVN_Southbound
	Endpoints []string // of the servers: unix:PATH, tcp:IP:PORT or ssl:IP:PORT
	TLS       nb.TLS   // for ssl endpoints
	Control   string   // path of this machine's control socket, for tcp and ssl endpoints; "": none
}

// Northbound returns the Northbound database, with OVN's default control socket.
func Northbound(endpoints []string, files nb.TLS) Database {
	return Database{
		Name: "OVN_Northbound", Endpoints: endpoints, TLS: files, Control: "/run/ovn/ovnnb_db.ctl",
	}
}

// Southbound returns the Southbound database, with OVN's default control socket.
func Southbound(endpoints []string, files nb.TLS) Database {
	return Database{
		Name: "OVN_Southbound", Endpoints: endpoints, TLS: files, Control: "/run/ovn/ovnsb_db.ctl",
	}
}

// Server is the state of one server, as it reports it.
type Server struct {
	Endpoint    string
	Err         error        // why it did not answer; then all fields but Endpoint are zero
	Clustered   bool         // otherwise it is standalone, and only Size is valid of the fields below
	Cluster, ID string       // identifiers of the cluster and of the server
	Leader      bool         // of the cluster
	Connected   bool         // to a majority of the cluster
	Index       int          // of the log entry that clients see
	Local       *LocalStatus // nil if its control socket is not on this machine
	Size        int64        // of its database file in bytes; 0 if unknown
}

// LocalStatus is the state that only a server's control socket reports.
type LocalStatus struct {
	ID                       string // of the server
	Role                     string // leader, follower or candidate
	Term                     int
	First, Next              int // indexes of the first log entry, and of the next one
	NotCommitted, NotApplied int // numbers of log entries
	Servers                  int // members that it knows
}

// Status queries all servers concurrently. The result has the order of the endpoints.
func (d Database) Status(ctx context.Context) []Server {
	out := make([]Server, len(d.Endpoints))

	var group sync.WaitGroup
	for i, e := range d.Endpoints {
		group.Go(func() { out[i] = d.serverStatus(ctx, e) })
	}

	group.Wait()

	return out
}

// serverStatus queries one server. The control socket and the database's file add to the result if
// they can be read.
func (d Database) serverStatus(ctx context.Context, endpoint string) Server {
	s, err := d.readServerTable(ctx, endpoint)
	s.Endpoint = endpoint

	if err != nil {
		s.Err = fmt.Errorf("ask %s at %s: %w", d.Name, endpoint, err)
		return s
	}

	control, onThisMachine := d.controlSocket(endpoint)

	if s.Clustered {
		// The control socket may be missing, or belong to another server.
		local, err := readControlStatus(ctx, control, d.Name)
		if err == nil && local.ID == s.ID {
			s.Local, onThisMachine = &local, true
		}
	}

	if onThisMachine {
		s.Size = databaseFileSize(control)
	}

	return s
}

// controlSocket returns the path of the control socket that may be the server's. A server with a
// unix endpoint is on this machine, and has its control socket beside it.
func (d Database) controlSocket(endpoint string) (path string, onThisMachine bool) {
	socket, isUnix := strings.CutPrefix(endpoint, "unix:")
	if !isUnix {
		return d.Control, false
	}

	return strings.TrimSuffix(socket, filepath.Ext(socket)) + ".ctl", true
}

// databaseFileSize returns the size of the database's file, which is beside the control socket or
// in one of OVN's directories. It returns 0 if there is none.
func databaseFileSize(control string) int64 {
	name := strings.TrimSuffix(filepath.Base(control), ".ctl") + ".db"
	for _, dir := range []string{filepath.Dir(control), "/var/lib/ovn", "/etc/ovn"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return info.Size()
		}
	}

	return 0
}

// readServerTable reads the state that a server reports to its clients: the row of this database in
// the database _Server (ovsdb-server(5)).
func (d Database) readServerTable(ctx context.Context, endpoint string) (Server, error) {
	tlsConfig, err := d.TLS.Config([]string{endpoint})
	if err != nil {
		return Server{}, err
	}

	conn, err := dial(ctx, endpoint, tlsConfig)
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
	// Before the first log entry, the column is an empty set, and Index stays 0.
	_ = json.Unmarshal(row.Index, &s.Index)

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

// readControlStatus reads the state that the server of a control socket reports there.
func readControlStatus(ctx context.Context, path, database string) (LocalStatus, error) {
	if path == "" {
		return LocalStatus{}, errors.New("no control socket is known")
	}

	conn, err := dial(ctx, "unix:"+path, nil)
	if err != nil {
		return LocalStatus{}, err
	}
	defer conn.Close()

	var status string
	if err := call(ctx, conn, "cluster/status", []string{database}, &status); err != nil {
		return LocalStatus{}, err
	}

	return parseClusterStatus(status)
}

// parseClusterStatus reads the reply to cluster/status (ovsdb/raft.c of OVS): lines of the form
// "key: value", then the list of the members, with a line for each.
func parseClusterStatus(status string) (LocalStatus, error) {
	var l LocalStatus

	fields, members, _ := strings.Cut(status, "\nServers:")

	for line := range strings.Lines(fields) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)

		var err error

		switch key {
		case "Server ID": // the first four digits, and the complete UUID in parentheses
			_, l.ID, _ = strings.Cut(strings.TrimSuffix(value, ")"), "(")
		case "Role":
			l.Role = value
		case "Term":
			_, err = fmt.Sscanf(value, "%d", &l.Term)
		case "Log":
			_, err = fmt.Sscanf(value, "[%d, %d]", &l.First, &l.Next)
		case "Entries not yet committed":
			_, err = fmt.Sscanf(value, "%d", &l.NotCommitted)
		case "Entries not yet applied":
			_, err = fmt.Sscanf(value, "%d", &l.NotApplied)
		}

		if err != nil {
			return LocalStatus{}, fmt.Errorf("read cluster/status: line %q: %w", strings.TrimSpace(line), err)
		}
	}

	for line := range strings.Lines(members) {
		if strings.HasPrefix(line, "    ") {
			l.Servers++
		}
	}

	if l.ID == "" || l.Role == "" {
		return LocalStatus{}, fmt.Errorf("read cluster/status: no server in %.200q", status)
	}

	return l, nil
}

// dial connects to an OVSDB endpoint, or to a control socket as unix:PATH. Both speak JSON-RPC.
func dial(ctx context.Context, endpoint string, tlsConfig *tls.Config) (net.Conn, error) {
	kind, address, _ := strings.Cut(endpoint, ":")

	var d net.Dialer

	switch kind {
	case "unix":
		return d.DialContext(ctx, "unix", address)
	case "ssl":
		return (&tls.Dialer{NetDialer: &d, Config: tlsConfig}).DialContext(ctx, "tcp", address)
	default:
		return d.DialContext(ctx, "tcp", address)
	}
}

// call sends one request and reads its reply. The connection must not be used again.
func call(ctx context.Context, conn net.Conn, method string, params, result any) error {
	// A deadline in the past ends the Write or Read below as soon as ctx ends.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

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

		// The server may send requests of its own, such as an echo. They need no reply, because
		// this connection is closed soon.
		if reply.Method != "" || reply.ID != float64(id) { // JSON numbers become float64
			continue
		}

		if reply.Error != nil {
			return fmt.Errorf("%s: %v", method, reply.Error)
		}

		return json.Unmarshal(reply.Result, result)
	}
}
