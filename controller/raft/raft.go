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
	Control   string   // path of the control socket of this machine's server, if any; "": unknown
}

// Northbound returns the Northbound database, with the path of OVN's default control socket.
func Northbound(endpoints []string, files nb.TLS) Database {
	return Database{
		Name: "OVN_Northbound", Endpoints: endpoints, TLS: files, Control: "/run/ovn/ovnnb_db.ctl",
	}
}

// Southbound returns the Southbound database, with the path of OVN's default control socket.
func Southbound(endpoints []string, files nb.TLS) Database {
	return Database{
		Name: "OVN_Southbound", Endpoints: endpoints, TLS: files, Control: "/run/ovn/ovnsb_db.ctl",
	}
}

// Server is the state of one server, as it reports it.
type Server struct {
	Endpoint    string
	Err         error        // why it did not answer; then all fields but Endpoint are zero
	Clustered   bool         // otherwise it is standalone, and of the fields below only Size is valid
	Cluster, ID string       // UUIDs of the cluster and of the server; "" if not yet known
	Leader      bool         // of the cluster
	Connected   bool         // to a majority of the cluster
	Index       int          // of the log entry that clients see
	Local       *LocalStatus // nil if its control socket is not on this machine
	Size        int64        // of its database file in bytes; 0 if unknown
}

// LocalStatus is the state in the cluster that only a server's control socket reports
// (cluster/status, ovsdb-server(1)).
type LocalStatus struct {
	ID                       string // of the server
	Role                     string // leader, follower or candidate
	Term                     int
	First, Next              int // indexes of the first log entry, and of the next one
	NotCommitted, NotApplied int // numbers of log entries
	Servers                  int // members that it knows
}

// Status queries all servers concurrently, until ctx ends. The result has one Server for each
// endpoint, in their order. A server that does not answer has an Err.
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
		// The control socket may be missing, or be that of another server of the cluster.
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
// table Database of the database _Server (ovsdb-server(5)). The request is a transaction with one
// select operation (RFC 7047, 4.1.3 and 5.2.2).
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

	var results []struct { // one for each operation
		Error, Details string
		Rows           []struct {
			Model             string
			Leader, Connected bool
			Cid, Sid, Index   json.RawMessage // columns with at most one value
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
	// Before the first log entry, the column is an empty set (["set", []]), and Index stays 0.
	_ = json.Unmarshal(row.Index, &s.Index)

	return s, nil
}

// uuid returns the value of a column with at most one UUID: of ["uuid", "01234567-…"], or "" for
// ["set", []] (RFC 7047, 5.1).
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

// parseClusterStatus reads the reply to cluster/status (raft_unixctl_status in ovsdb/raft.c of
// OVS): lines of the form "key: value", then the list of the members, with an indented line for
// each. For example:
//
//	Server ID: 1234 (12345678-9abc-…)
//	Role: leader
//	Term: 3
//	Log: [2, 10]
//	Entries not yet committed: 0
//	Servers:
//	    1234 (1234 at ssl:192.0.2.1:6643) (self)
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

// call sends one JSON-RPC request and decodes the result of its reply. It returns when ctx ends.
// The connection must not be used again.
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
