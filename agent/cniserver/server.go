package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
	"github.com/ovn-ebpf/ovn-ebpf/listener"
)

// requestTimeout bounds a request. A kubelet waits two minutes in total.
const requestTimeout = 110 * time.Second

// answerTimeout leaves time to answer a request that used its whole time. It also bounds reading,
// as net/http cancels a running request when its read timeout ends.
const answerTimeout = requestTimeout + 10*time.Second

// maxConnections exceeds the number of concurrent requests of a kubelet with a full node.
const maxConnections = 512

// Source decides which interface a pod gets. It does not create the interface. Overlay mode has
// assignment.Source, and underlay mode its own one.
type Source interface {
	// Pod waits until a pod can get an interface for the attachment. It returns UID, MAC,
	// Addresses, Gateways and MTU. When ctx ends, the error says what is missing.
	Pod(ctx context.Context, ref cluster.PodRef, a podnet.Attachment) (podnet.Pod, error)
	// Settled returns an error if the pod must now have another interface than it got.
	Settled(ctx context.Context, ref cluster.PodRef, got podnet.Pod) error
}

// Options configure a Server. All fields are required.
type Options struct {
	Socket     string
	Cluster    *cluster.Cluster
	Source     Source
	Interfaces *podnet.InterfaceManager
	Keeper     *podnet.Keeper
	// Status returns what the node lacks for new pods. limited reports whether existing pods may
	// have lost connectivity as well.
	Status       func() (missing []string, limited bool)
	Observe      func(command string, failed bool, took time.Duration) // called after each request
	ObservePhase func(phase string, took time.Duration)                // called after each phase of an ADD
	Log          *slog.Logger
}

// Server serves the socket. Its methods are safe for concurrent use; Run must be called once.
type Server struct {
	o        Options
	locks    *locks
	attempts *attempts

	listening atomic.Bool

	mu       sync.Mutex        // guards reported
	reported map[string]string // UID and mistake of the last Event, by namespace/name of the pod
}

// New returns a Server that does not listen yet.
func New(o Options) *Server {
	return &Server{o: o, locks: newLocks(), attempts: newAttempts(), reported: map[string]string{}}
}

// Missing returns what keeps the server from serving requests, or "".
func (s *Server) Missing() string {
	if !s.listening.Load() {
		return "CNI socket " + s.o.Socket + ": not listening yet"
	}

	return ""
}

// Try blocks requests for the container until release is called. It returns false if a request is
// under way.
func (s *Server) Try(containerID string) (release func(), ok bool) { return s.locks.try(containerID) }

// endTimeout bounds the wait of Run for the cleanup of cancelled requests.
const endTimeout = 25 * time.Second

// Run listens until ctx ends, then cancels running requests and waits for their cleanup. Only root
// may use the socket. ready is called when the socket listens.
func (s *Server) Run(ctx context.Context, ready func()) error {
	l, err := listen(s.o.Socket)
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST "+cni.Path, s.serve)
	srv := listener.NewPool(maxConnections).Server(mux, listener.Timeouts{Request: answerTimeout})
	srv.BaseContext = func(net.Listener) context.Context { return ctx } // the end of ctx cancels requests

	ended := make(chan error, 1) // the result of Shutdown, which waits for the requests

	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()

		ended <- srv.Shutdown(end)
	})
	defer stop()

	s.listening.Store(true)
	ready()

	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.o.Socket, err)
	}

	if err := <-ended; err != nil {
		return fmt.Errorf("end CNI requests: %w", err)
	}

	return nil
}

// listen listens on a unix socket for root only. It replaces the socket of an agent that was
// killed.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make directory of CNI socket: %w", err)
	}

	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old CNI socket: %w", err)
	}

	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for CNI requests: %w", err)
	}

	// At the end, the path may belong to the next agent.
	l.(*net.UnixListener).SetUnlinkOnClose(false)

	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("protect CNI socket: %w", err)
	}

	return l, nil
}

// serve handles one request of the plugin.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	start := time.Now()

	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()

	var (
		req  cni.Request
		resp cni.Response
	)
	// Read the whole body: only then net/http notices that the plugin hangs up, and ends the
	// context.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(body, &req)
	}

	if err != nil {
		err = types.NewError(types.ErrDecodingFailure, "parse CNI request: "+err.Error(),
			"agent and plugin may be of different versions")
	} else {
		resp.Result, err = s.handle(ctx, req)
	}

	log := s.o.Log.With("command", req.Command, "container", req.ContainerID, "args", req.Args,
		"took", time.Since(start))
	status := http.StatusOK

	switch {
	case err != nil:
		resp.Error = asCNIError(req, err)
		status = http.StatusInternalServerError

		log.Error("CNI request failed", "error", err)
	case req.Command == "STATUS": // runtimes send it every few seconds
		log.Debug("CNI request served")
	default:
		log.Info("CNI request served")
	}

	s.o.Observe(req.Command, err != nil, time.Since(start))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)

	if err := json.NewEncoder(w).Encode(resp); err != nil {
		log.Warn("cannot answer the plugin", "error", err)
	}
}
