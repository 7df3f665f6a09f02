package sb

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	sbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/sb"
)

// timeout is for a whole call: nodes go seldom, and their rows can wait, but
// nobody else's shall.
const timeout = 5 * time.Second

// DB is a Southbound database. It is connected for the length of a call: it is
// asked when a node goes. Its methods may be called from any goroutine.
type DB struct {
	endpoints []string
	tls       nb.TLS
	log       *slog.Logger
}

// New returns the database at any of the endpoints, of several the leader.
func New(endpoints []string, files nb.TLS, log *slog.Logger) *DB {
	return &DB{endpoints: endpoints, tls: files, log: log}
}

// RemoveChassis deletes the chassis of that name, with its encapsulations and its
// private row. One that does not exist is no error. An ovn-controller that
// runs, and is connected, will make it anew.
func (d *DB) RemoveChassis(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	removed, err := d.remove(ctx, name)
	if err != nil {
		return fmt.Errorf("remove chassis %q from southbound database %s: %w", name, strings.Join(d.endpoints, ","), err)
	}
	if removed > 0 {
		d.log.Info("chassis removed", "chassis", name)
	}
	return nil
}

func (d *DB) remove(ctx context.Context, name string) (int, error) {
	conn, err := d.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	where := []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)}
	ops := []ovsdb.Operation{{Op: ovsdb.OperationDelete, Table: sbmodel.ChassisTable, Where: where}}
	if _, ok := conn.Schema().Tables[sbmodel.ChassisPrivateTable]; ok { // OVN 20.09
		ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: sbmodel.ChassisPrivateTable, Where: where})
	}
	results, err := conn.Transact(ctx, ops...)
	if err != nil {
		return 0, err
	}
	if _, err := ovsdb.CheckOperationResults(results, ops); err != nil {
		return 0, err
	}
	return results[0].Count, nil
}

// connect returns a connection that reads nothing.
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
