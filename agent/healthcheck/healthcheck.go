package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/listener"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// ReasonFailed is the reason of Events about a port on which the Server cannot listen.
const ReasonFailed = "FailedToStartServiceHealthcheck"

// maxConnections bounds the connections of all Services' health checks together, because a
// namespace may have any number of Services. The node's health check has the same bound of its own.
const maxConnections = 256

// Options configure a Server.
type Options struct {
	Node    string
	Keys    func() ([]service.Key, bool)      // all keys; false while unknown
	Objects func(service.Key) service.Objects // the Service of a key with its slices; none: it has no check
	Healthy func() bool                       // whether the node serves Services completely
	// Warn writes an Event about a Service.
	Warn func(ctx context.Context, svc *corev1.Service, reason, message string) error
	Log  *slog.Logger
}

// Server has a listener for each Service with a health check port. Changed and Synced may be called
// concurrently. Run must be called once.
type Server struct {
	o    Options
	wake loop.Signal
	pool *listener.Pool

	mu      sync.Mutex           // guards changed
	changed map[service.Key]bool // Services to sync

	// The goroutine of Run owns these.
	serving  map[service.Key]*check
	reported map[service.Key]string // error of the last Event
}

// New returns a Server that does not run yet.
func New(o Options) *Server {
	return &Server{
		o: o, wake: loop.NewSignal(), pool: listener.NewPool(maxConnections), changed: map[service.Key]bool{},
		serving: map[service.Key]*check{}, reported: map[service.Key]string{},
	}
}

// Changed notes that the result of Objects has changed for the key.
func (s *Server) Changed(k service.Key) {
	if k.Kind != service.KindService {
		return
	}

	s.noteChanged(k)
	s.wake.Trigger()
}

// Synced notes that Keys is complete.
func (s *Server) Synced() { s.wake.Trigger() }

// noteChanged marks a Service for the next sync.
func (s *Server) noteChanged(k service.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.changed[k] = true
}

// Run serves until ctx ends. It retries a port that is in use until it is free.
func (s *Server) Run(ctx context.Context) error {
	defer func() {
		for _, c := range s.serving {
			c.close()
		}
	}()

	return loop.Run(ctx, loop.Options{
		Name: "service health checks", Wake: s.wake, Apply: s.sync, Log: s.o.Log,
	})
}

// sync updates the listeners of changed Services. Failed ones stay marked as changed.
func (s *Server) sync(ctx context.Context) error {
	if _, known := s.o.Keys(); !known {
		return nil // Synced will be called
	}

	s.mu.Lock()
	changed := s.changed
	s.changed = map[service.Key]bool{}
	s.mu.Unlock()

	// A port may move between Services, so close all outdated listeners before opening others.
	want := map[service.Key]wanted{}

	for k := range changed {
		w := wants(s.o.Objects(k), s.o.Node)
		if c := s.serving[k]; c != nil && c.port != w.port {
			c.close()
			delete(s.serving, k)
			s.o.Log.Info("health check stopped", "service", k.Namespace+"/"+k.Name, "port", c.port)
		}

		if w.port == 0 {
			delete(s.reported, k)
			continue
		}

		want[k] = w
	}

	var errs []error

	for _, k := range slices.SortedFunc(maps.Keys(want), service.Key.Compare) {
		if err := s.serve(k, want[k]); err != nil {
			s.noteChanged(k) // no wake-up: the error causes a retry

			errs = append(errs, err)
			s.reportError(ctx, k, err)

			continue
		}

		delete(s.reported, k)
	}

	return errors.Join(errs...)
}

// serve opens the listener of a Service, or updates the number of its endpoints.
func (s *Server) serve(k service.Key, w wanted) error {
	if c := s.serving[k]; c != nil {
		c.endpoints.Store(int64(w.endpoints))
		return nil
	}

	l, err := net.Listen("tcp", ":"+strconv.Itoa(int(w.port)))
	if err != nil {
		return fmt.Errorf("serve health check of service %s/%s: %w", k.Namespace, k.Name, err)
	}

	c := newCheck(k, w, l, s.pool, s.o.Healthy)
	s.serving[k] = c
	s.o.Log.Info("health check started", "service", k.Namespace+"/"+k.Name, "port", w.port)

	return nil
}

// reportError writes an Event about the Service, unless the last one had the same error.
func (s *Server) reportError(ctx context.Context, k service.Key, err error) {
	svc := s.o.Objects(k).Service
	if svc == nil || s.reported[k] == err.Error() {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	if warnErr := s.o.Warn(ctx, svc, ReasonFailed, fmt.Sprintf("node %s: %v", s.o.Node, err)); warnErr != nil {
		s.o.Log.Warn("cannot write event", "error", warnErr)
		return
	}

	s.reported[k] = err.Error()
}

// wanted is the health check of a Service; port 0 means none.
type wanted struct {
	port      uint16
	endpoints int // ready and on this node
}

// wants returns the health check of a Service on this node.
func wants(o service.Objects, node string) wanted {
	svc := service.New(service.Config{}, o.Service, o.Slices)
	if svc == nil || svc.HealthCheckPort == 0 {
		return wanted{}
	}

	return wanted{port: svc.HealthCheckPort, endpoints: svc.ReadyOn(node)}
}
