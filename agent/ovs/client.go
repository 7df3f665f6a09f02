package ovs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/ovsdb/vswitch"
)

const (
	connectTimeout = 10 * time.Second       // of one attempt to reconnect
	reconnectPause = 250 * time.Millisecond // between two attempts
)

// ErrNotFound is returned (wrapped) when a bridge or a port does not exist.
var ErrNotFound = errors.New("not in the OVS database")

// Client is a connection to the node's ovsdb-server with a cache of the rows that the agent needs.
// It reconnects automatically and is safe for concurrent use.
type Client struct {
	db client.Client

	mu       sync.Mutex // guards watchers
	watchers map[*watcher]struct{}
}

// Dial connects to address ("unix:/run/openvswitch/db.sock", "tcp:127.0.0.1:6640") and fills the
// cache. It fails if the server is unreachable. A connection that is lost later is re-established.
func Dial(ctx context.Context, address string) (*Client, error) {
	dbModel, err := model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		vswitch.OpenvSwitchTable: &vswitch.OpenvSwitch{},
		vswitch.BridgeTable:      &vswitch.Bridge{},
		vswitch.PortTable:        &vswitch.Port{},
		vswitch.InterfaceTable:   &vswitch.Interface{},
		vswitch.QoSTable:         &vswitch.QoS{},
		vswitch.DatapathTable:    &vswitch.Datapath{},
	})
	if err != nil {
		return nil, fmt.Errorf("build OVSDB model: %w", err)
	}

	quiet := logr.Discard()

	db, err := client.NewOVSDBClient(dbModel, client.WithEndpoint(address), client.WithLogger(&quiet),
		client.WithReconnect(connectTimeout, steady(reconnectPause)))
	if err != nil {
		return nil, fmt.Errorf("open OVSDB %s: %w", address, err)
	}

	if err := db.Connect(ctx); err != nil {
		return nil, fmt.Errorf("connect to OVSDB %s: %w", address, err)
	}

	c := &Client{db: db, watchers: map[*watcher]struct{}{}}

	rows := db.Cache()
	if rows == nil { // libovsdb drops the cache when the connection is lost
		return nil, fmt.Errorf("connect to OVSDB %s: connection lost", address)
	}

	rows.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    c.changed,
		UpdateFunc: func(table string, _, row model.Model) { c.changed(table, row) },
		DeleteFunc: c.changed,
	})

	if _, err := db.Monitor(ctx, monitor(db)); err != nil {
		db.Close()
		return nil, fmt.Errorf("monitor OVSDB %s: %w", address, err)
	}

	return c, nil
}

// monitor selects the columns that the agent reads. It excludes statistics, which would trigger an
// update every five seconds.
func monitor(db client.Client) *client.Monitor {
	var (
		o vswitch.OpenvSwitch
		b vswitch.Bridge
		p vswitch.Port
		i vswitch.Interface
		q vswitch.QoS
		d vswitch.Datapath
	)

	return db.NewMonitor(
		client.WithTable(&o, &o.ExternalIDs, &o.OtherConfig, &o.Bridges, &o.OVSVersion, &o.CurCfg,
			&o.Datapaths),
		client.WithTable(&b, &b.Name, &b.Ports, &b.DatapathType, &b.FailMode, &b.OtherConfig, &b.ExternalIDs,
			&b.Mirrors, &b.Sflow, &b.Netflow, &b.IPFIX),
		client.WithTable(&p, &p.Name, &p.Interfaces, &p.OtherConfig, &p.QOS),
		client.WithTable(&i, &i.Name, &i.Type, &i.ExternalIDs, &i.MAC, &i.MTURequest, &i.Options, &i.Ofport,
			&i.Ifindex, &i.Error),
		client.WithTable(&q, &q.Type, &q.ExternalIDs),
		client.WithTable(&d, &d.Capabilities),
	)
}

// Close closes the connection.
func (c *Client) Close() { c.db.Close() }

// Connected reports whether the connection is up. libovsdb's own Connected stays true during a
// reconnection.
func (c *Client) Connected() bool { return c.db.CurrentEndpoint() != "" }

// watcher is triggered by changes of matching rows.
type watcher struct {
	match func(table, name string) bool
	wake  loop.Signal
}

// Watch triggers wake after any change of a row for which match returns true, until stop is called.
// match gets the row's table and name; rows without a name have name "". It must not block.
func (c *Client) Watch(match func(table, name string) bool, wake loop.Signal) (stop func()) {
	w := &watcher{match, wake}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.watchers[w] = struct{}{}

	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()

		delete(c.watchers, w)
	}
}

// changed triggers the watchers of a row.
func (c *Client) changed(table string, row model.Model) {
	name := ""

	switch r := row.(type) {
	case *vswitch.Bridge:
		name = r.Name
	case *vswitch.Port:
		name = r.Name
	case *vswitch.Interface:
		name = r.Name
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	for w := range c.watchers {
		if w.match(table, name) {
			w.wake.Trigger()
		}
	}
}

// steady is the backoff of reconnections, with a constant wait: the server runs on the same
// machine, and the node does not work without it.
type steady time.Duration

func (s steady) NextBackOff() time.Duration { return time.Duration(s) }
func (s steady) Reset()                     {}
