package nb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

const (
	connectTimeout = 20 * time.Second // to connect and to read the whole database
	probeInterval  = 10 * time.Second
	probeTimeout   = 30 * time.Second // a loaded server replies late
	commitTimeout  = 30 * time.Second
	backoffMin     = 100 * time.Millisecond
	backoffMax     = 5 * time.Second
)

// ErrNotConnected is the error of operations while there is no connection.
var ErrNotConnected = errors.New("not connected")

// ErrStorage is returned (wrapped) by writes that the server could not store in its file. The
// cause is the server's disk, not what is written.
var ErrStorage = errors.New("the database server cannot write its file")

// errLost is why a connection ended that the server or libovsdb has closed.
var errLost = errors.New("connection lost")

// DB is a Northbound database and its connection. OnChange and UseTLS configure it before Run, and
// Run keeps it connected. The other methods may be called at any time from any goroutine.
type DB struct {
	endpoints []string
	log       *slog.Logger
	tls       TLS            // see UseTLS
	changed   func(plan.Key) // see OnChange; nil: no callback
	connected chan struct{}  // see Connected; one slot
	stats     *stats
	echoes    *echoes // writes of this process that changed must not report

	committing sync.Mutex // held by one commit, Claim or Owners at a time; guards members, joins and isolations
	joins      joins
	isolations joins // of ports that wait for groups which isolate them: see isolation.go
	members    members

	mu          sync.Mutex    // guards all below
	conn        client.Client // nil while there is no connection
	reason      error         // why conn is nil
	generation  uint64        // see Generation
	unwritable  error         // the last write's ErrStorage; nil after a write that was stored
	missing     []string      // see Missing
	forgetsUsed bool          // see schemaForgetsUsed
	term        *Term         // of the last Claim; nil: transactions are unconditional
}

// New returns the database at any of the endpoints, not yet connected. With several endpoints it
// uses the leader of the cluster.
func New(endpoints []string, log *slog.Logger) *DB {
	return &DB{
		endpoints: endpoints,
		log:       log,
		connected: make(chan struct{}, 1),
		stats:     newStats(),
		echoes:    &echoes{},
		reason:    errors.New("no connection was tried yet"),
	}
}

// Connected returns a channel that has a value after each new connection. The contents of the
// database may have changed completely. Values that are not received merge into one.
func (d *DB) Connected() <-chan struct{} { return d.connected }

// OnChange sets the callback for changes by other clients. It is called with the owner of each row
// whose planned columns changed, or that was removed from its parents or deleted. It may also be
// called for a write of Commit. It runs in a goroutine of the connection and must not block. Call
// OnChange before Run.
func (d *DB) OnChange(f func(plan.Key)) { d.changed = f }

// UseTLS sets the files for ssl: endpoints. Call UseTLS before Run.
func (d *DB) UseTLS(t TLS) { d.tls = t }

// Ready returns nil while connected with the whole database in memory. Otherwise it returns an
// error with the endpoints and the reason.
func (d *DB) Ready() error {
	_, err := d.client()
	return err
}

// Storage returns ErrStorage (wrapped) if the server could not store the last write in its file.
func (d *DB) Storage() error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.unwritable == nil {
		return nil
	}

	return fmt.Errorf("northbound database %s: %w", strings.Join(d.endpoints, ","), d.unwritable)
}

// noteWrite records whether the server could store a write with this outcome. Other errors leave
// open whether it can.
func (d *DB) noteWrite(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if err == nil || errors.Is(err, ErrStorage) {
		d.unwritable = err
	}
}

// client returns the connection, or ErrNotConnected (wrapped).
func (d *DB) client() (client.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.conn == nil {
		return nil, fmt.Errorf("northbound database %s: %w: %w", strings.Join(d.endpoints, ","),
			ErrNotConnected, d.reason)
	}

	return d.conn, nil
}

// setConnection records a new connection, or why there is none.
func (d *DB) setConnection(conn client.Client, reason error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.conn, d.reason, d.unwritable = conn, reason, nil
	if conn != nil {
		d.generation++
	}
}

// Generation returns the number of connections so far. So it identifies the current or last
// connection, and is 0 before the first.
func (d *DB) Generation() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.generation
}

// Run connects, and reconnects with backoff whenever the connection is lost, until the context
// ends.
func (d *DB) Run(ctx context.Context) error {
	wait := backoffMin

	for ctx.Err() == nil {
		conn, lost, err := d.connect(ctx)
		if err == nil {
			wait = backoffMin

			d.log.Info("connected to northbound database", "endpoint", conn.CurrentEndpoint())
			d.setConnection(conn, nil)

			select {
			case d.connected <- struct{}{}:
			default: // the value of an earlier connection was not received yet
			}

			err = awaitLoss(ctx, conn, lost)
			d.setConnection(nil, err)
			conn.Close()
		}

		if ctx.Err() != nil {
			break
		}

		d.setConnection(nil, err)
		d.log.Warn("no connection to northbound database",
			"endpoints", d.endpoints, "error", err, "retry", wait)

		loop.Pause(ctx, wait)

		wait = min(2*wait, backoffMax)
	}

	return nil
}

// connect returns a connection whose cache holds the whole database, and a channel that is closed
// when the connection is lost.
func (d *DB) connect(ctx context.Context) (client.Client, <-chan struct{}, error) {
	files, err := d.tls.Config(d.endpoints)
	if err != nil {
		return nil, nil, err
	}

	opts := []client.Option{client.WithLeaderOnly(len(d.endpoints) > 1), client.WithTLSConfig(files)}
	for _, e := range d.endpoints {
		opts = append(opts, client.WithEndpoint(e))
	}

	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()

	schema, err := d.readSchema(ctx, opts)
	if err != nil {
		return nil, nil, err
	}

	conn, err := client.NewOVSDBClient(schema.model, opts...)
	if err != nil {
		return nil, nil, err
	}

	if err := conn.Connect(ctx); err != nil {
		return nil, nil, err
	}

	cache := conn.Cache()
	if cache == nil { // libovsdb has already dropped it
		return nil, nil, errLost
	}

	// The handlers miss no change, because they are added before Monitor fills the cache.
	cache.AddEventHandler(d.members.events())

	if d.changed != nil {
		d.echoes.reset()
		cache.AddEventHandler(newChangeHandler(cache, d.echoes, d.changed))
	}

	lost := make(chan struct{})

	go func() {
		<-conn.DisconnectNotify() // delivered only to a receiver that is waiting
		close(lost)
	}()

	if _, err := conn.Monitor(ctx, conn.NewMonitor(schema.monitorOptions()...)); err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("monitor tables: %w", err)
	}

	d.logMissing(schema)

	return conn, lost, nil
}

// awaitLoss returns when the connection is lost or does not reply to a probe, or when ctx ends.
func awaitLoss(ctx context.Context, conn client.Client, lost <-chan struct{}) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return errLost
		case <-tick.C:
			probe, cancel := context.WithTimeout(ctx, probeTimeout)
			err := conn.Echo(probe)

			cancel()

			if err != nil {
				return fmt.Errorf("probe: %w", err)
			}
		}
	}
}
