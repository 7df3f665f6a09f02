package sb

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
)

// timeout limits a whole call. It is short because the rows of other owners wait for the call.
const timeout = 5 * time.Second

// Tables of the Southbound schema.
const (
	chassisTable        = "Chassis"
	chassisPrivateTable = "Chassis_Private" // since OVN 20.09
	encapTable          = "Encap"
	globalTable         = "SB_Global"
)

// DB is OVN's Southbound database. Each call makes its own connection, because calls are rare. Its
// methods may be called from any goroutine.
type DB struct {
	endpoints []string
	tls       nb.TLS
	log       *slog.Logger
}

// New returns the database at the endpoints, as nb.Parse returns them. It does not connect. With
// several endpoints, calls use the leader of the cluster.
func New(endpoints []string, files nb.TLS, log *slog.Logger) *DB {
	return &DB{endpoints: endpoints, tls: files, log: log}
}

// termID is the key in SB_Global's external_ids of the term in which this database was last
// written. northd 23.03 does not overwrite these external_ids, and ovn-controller does not read
// them.
const termID = "ovn-ebpf.io/term"

// Fence limits a write to one term of a leader, also if the process is suspended before the write.
// The zero Fence does not limit it.
//
// The Northbound database has the current term, so a transaction here cannot compare with it. The
// write therefore has three steps:
//  1. Read the term that this database has recorded last.
//  2. Call Holds: the Northbound database must still have this term.
//  3. Write, and record this term, if the term of step 1 is still recorded.
//
// If the leader is suspended after step 2, and another leader writes here meanwhile, step 3 fails
// with nb.ErrFenced. A new leader does not write here only to record its term, so an old write may
// still succeed before the first write of the new leader.
type Fence struct {
	Term  string                      // unique among all leaders and terms
	Holds func(context.Context) error // returns an error if the Northbound database has another term
}

// RemoveChassis deletes the chassis of that name, with its encapsulations and its private row. A
// missing chassis is not an error. A connected ovn-controller creates its chassis again.
func (d *DB) RemoveChassis(ctx context.Context, name string, f Fence) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	removed, err := d.remove(ctx, name, f)
	if err != nil {
		return fmt.Errorf("remove chassis %q from southbound database %s: %w",
			name, strings.Join(d.endpoints, ","), err)
	}

	if removed > 0 {
		d.log.Info("chassis removed", "chassis", name)
	}

	return nil
}

// remove returns the number of deleted chassis.
func (d *DB) remove(ctx context.Context, name string, f Fence) (int, error) {
	conn, err := d.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()

	where := []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)}

	// OVSDB deletes the rows of Encap with their chassis, which alone refers to them.
	ops := []ovsdb.Operation{{Op: ovsdb.OperationDelete, Table: chassisTable, Where: where}}
	if _, ok := conn.Schema().Tables[chassisPrivateTable]; ok {
		ops = append(ops, ovsdb.Operation{
			Op: ovsdb.OperationDelete, Table: chassisPrivateTable, Where: where,
		})
	}

	var fence []ovsdb.Operation
	if f.Holds != nil {
		if fence, err = f.operations(ctx, conn); err != nil {
			return 0, err
		}

		if err := f.Holds(ctx); err != nil {
			return 0, err
		}
	}

	all := slices.Concat(fence, ops)

	results, err := conn.Transact(ctx, all...)
	if err != nil {
		return 0, err
	}

	if len(fence) > 0 && len(results) > 0 && results[0].Error == waitFailed {
		return 0, nb.ErrFenced
	}

	if _, err := ovsdb.CheckOperationResults(results, all); err != nil {
		return 0, err
	}

	return results[len(fence)].Count, nil // of the first delete
}

// waitFailed is the error of a wait operation whose condition does not hold (RFC 7047, 5.2.6).
const waitFailed = "timed out"

// operations reads the recorded term. It returns a wait operation, which fails if another term is
// recorded then, and an update operation that records this term. It returns none if northd has not
// created the row of SB_Global yet.
func (f Fence) operations(ctx context.Context, conn client.Client) ([]ovsdb.Operation, error) {
	all := []ovsdb.Condition{}
	read := ovsdb.Operation{
		Op:      ovsdb.OperationSelect,
		Table:   globalTable,
		Where:   all,
		Columns: []string{"_uuid", "external_ids"},
	}

	results, err := conn.Transact(ctx, read)
	if err != nil {
		return nil, err
	}

	if _, err := ovsdb.CheckOperationResults(results, []ovsdb.Operation{read}); err != nil {
		return nil, err
	}

	if len(results[0].Rows) == 0 {
		return nil, nil
	}

	row := results[0].Rows[0] // the table has only one row
	where := []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, row["_uuid"])}
	noWait := 0 // milliseconds: the wait fails at once if its condition does not hold

	ids := map[any]any{}
	if recorded, ok := row["external_ids"].(ovsdb.OvsMap); ok {
		maps.Copy(ids, recorded.GoMap)
	}

	ids[termID] = f.Term

	return []ovsdb.Operation{
		{
			Op:      ovsdb.OperationWait,
			Table:   globalTable,
			Timeout: &noWait,
			Where:   where,
			Columns: []string{"external_ids"},
			Until:   string(ovsdb.WaitConditionEqual),
			Rows:    []ovsdb.Row{{"external_ids": row["external_ids"]}},
		},
		{
			Op:    ovsdb.OperationUpdate,
			Table: globalTable,
			Where: where,
			Row:   ovsdb.Row{"external_ids": ovsdb.OvsMap{GoMap: ids}},
		},
	}, nil
}

// Chassis is a node as its ovn-controller has registered it.
type Chassis struct {
	Hostname string   // the Node's name
	IPs      []string // of its tunnels
}

// ListChassis returns all chassis by name, which is the system-id of the node's OVS.
func (d *DB) ListChassis(ctx context.Context) (map[string]Chassis, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	out, err := d.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list chassis of southbound database %s: %w", strings.Join(d.endpoints, ","),
			err)
	}

	return out, nil
}

// list reads all chassis with their tunnel addresses.
func (d *DB) list(ctx context.Context) (map[string]Chassis, error) {
	conn, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	all := []ovsdb.Condition{}
	ops := []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: chassisTable, Where: all, Columns: []string{"name", "hostname"}},
		{Op: ovsdb.OperationSelect, Table: encapTable, Where: all, Columns: []string{"chassis_name", "ip"}},
	}

	results, err := conn.Transact(ctx, ops...)
	if err != nil {
		return nil, err
	}

	if _, err := ovsdb.CheckOperationResults(results, ops); err != nil {
		return nil, err
	}

	out := map[string]Chassis{}

	for _, row := range results[0].Rows {
		name, _ := row["name"].(string)
		hostname, _ := row["hostname"].(string)
		out[name] = Chassis{Hostname: hostname}
	}

	for _, row := range results[1].Rows {
		name, _ := row["chassis_name"].(string)

		ip, _ := row["ip"].(string)
		if c, known := out[name]; known {
			c.IPs = append(c.IPs, ip)
			out[name] = c
		}
	}

	return out, nil
}

// connect returns a connection that monitors no tables, so it has no cache.
func (d *DB) connect(ctx context.Context) (client.Client, error) {
	files, err := d.tls.Config(d.endpoints)
	if err != nil {
		return nil, err
	}

	dbModel, err := model.NewClientDBModel("OVN_Southbound", map[string]model.Model{})
	if err != nil {
		return nil, err
	}

	opts := []client.Option{client.WithLeaderOnly(len(d.endpoints) > 1), client.WithTLSConfig(files)}
	for _, e := range d.endpoints {
		opts = append(opts, client.WithEndpoint(e))
	}

	conn, err := client.NewOVSDBClient(dbModel, opts...)
	if err != nil {
		return nil, err
	}

	if err := conn.Connect(ctx); err != nil {
		return nil, err
	}

	return conn, nil
}
