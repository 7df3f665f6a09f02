package environment

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Prefixes of the lines of /readyz: of a fault, and of a warning, which does not degrade the node.
const (
	Prefix  = "degraded: "
	Warning = "warning: "
)

// Reasons of Kubernetes Events about the Node. Each is a kind of fault; docs/status.md explains
// them.
const (
	// Found by the checks of this package.
	KubeProxyRuns = "KubeProxyRuns"
	ClockDiffers  = "ClockDiffers"
	DiskFull      = "DiskFull"
	NoCgroup2     = "NoCgroup2"
	SwitchAborts  = "SwitchAborts"
	NotReady      = "NetworkNotReady"

	// Found by checks of the agent's parts, which Watch.Add registers.
	GatewayAddressGone    = "GatewayAddressGone"
	GatewayAddressDiffers = "GatewayAddressDiffers"
	RoutesRemoved         = "RoutesRemoved"
	NextHopUnreachable    = "NextHopUnreachable"
	ChassisTaken          = "ChassisTaken"
	ChassisDiffers        = "ChassisDiffers"

	NetworksOverlap       = "NetworksOverlap"
	DefaultRouteElsewhere = "DefaultRouteElsewhere"
	NoIPv4NextHop         = "NoIPv4NextHop"
	NoIPv6NextHop         = "NoIPv6NextHop"
	KernelDatapathUnused  = "KernelDatapathUnused"
	KernelDatapathMissing = "KernelDatapathMissing"
	OtherNetworkFirst     = "OtherNetworkFirst"
	CertificateInvalid    = "CertificateInvalid"
	AffinityLosesPackets  = "AffinityLosesPackets"
	ForwardDropped        = "ForwardDropped"
	ClusterNotFollowed    = "ClusterNotFollowed"

	// AgentFailed is not found by a check: ovnkube writes it when the agent ends with an error.
	AgentFailed = "AgentFailed"
)

const (
	interval = 30 * time.Second // between two runs of the checks of this package
	eventGap = time.Minute      // between two Events of one reason: a fault may begin and end often
)

// Options configure a Watch. A check whose function is nil is skipped.
type Options struct {
	// KubeProxy is the URL at which kube-proxy answers with its mode,
	// http://127.0.0.1:10249/proxyMode by default.
	KubeProxy string
	// Server is the URL of the API server, and Client a client for it. Without a Client the clock
	// is not compared.
	Server string
	Client *http.Client
	// Cgroup returns an error if the host has no cgroup2 to which programs can be attached.
	Cgroup func() error
	// SwitchAborts reports whether connections of pods can abort the running ovs-vswitchd.
	SwitchAborts func(context.Context) (bool, error)
	// Dirs are directories in which the agent, Open vSwitch or OVN's databases write. Missing ones
	// are ignored.
	Dirs []string
	// Missing returns what keeps the node from being ready; none if it is ready.
	Missing func() []string
	// Warn writes an Event about the Node. It is called once for each fault that begins, and at
	// most once per minute for each reason. A failed call is repeated. It must not be nil.
	Warn func(ctx context.Context, reason, message string) error
	Log  *slog.Logger
}

// Fault is one fault of the node.
type Fault struct {
	Reason string // of the Event
	Text   string // the fault, and after the first semicolon the advice
}

// Line returns the fault's line of /readyz. A release of Open vSwitch that pods can abort is a
// warning: status would never be right on such a node, and would hide other faults.
func (f Fault) Line() string {
	if f.Reason == SwitchAborts {
		return Warning + f.Text
	}

	return Prefix + f.Text
}

// Watch looks for faults. Its methods are safe for concurrent use.
//
// It has two loops. The first one, runChecks, runs all checks, replaces faults, and notes in
// pending each fault that has begun. The second one, report, writes the Events of pending, and
// repeats them while the API server does not answer.
type Watch struct {
	Options
	client http.Client // for kube-proxy

	wake     loop.Signal      // triggers runChecks
	newFault loop.Signal      // triggers report
	now      func() time.Time // time.Now, except in tests

	mu      sync.Mutex           // guards the following fields
	faults  []Fault              // see Faults
	checks  []Check              // see Add
	active  map[string]bool      // reasons of present faults that have an Event, or are pending
	begun   map[string]time.Time // by reason: the time when a fault was last noted in pending
	pending map[string]Fault     // Events to write, by reason

	// The goroutine of runChecks owns these.
	lastLook time.Time // when the checks of this package ran last
	found    []Fault   // by them
	unready  int       // their runs in a row at which something was missing
}

// Check looks for one kind of fault. It returns nil if there is none.
type Check func(context.Context) *Fault

// New returns a Watch that does not run yet.
func New(o Options) *Watch {
	if o.KubeProxy == "" {
		o.KubeProxy = "http://127.0.0.1:10249/proxyMode"
	}

	return &Watch{
		Options: o, wake: loop.NewSignal(), newFault: loop.NewSignal(), now: time.Now,
		begun: map[string]time.Time{}, pending: map[string]Fault{},
		client: http.Client{Timeout: answerWait, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// Faults returns the present faults, except NotReady. The slice must not be modified.
func (w *Watch) Faults() []Fault {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.faults
}

// Add adds checks of the agent's parts. They also run after each Trigger, so they must be cheap.
func (w *Watch) Add(checks ...Check) {
	w.mu.Lock()
	w.checks = append(w.checks, checks...)
	w.mu.Unlock()
	w.wake.Trigger()
}

// Trigger notes that the result of a check of Add may have changed.
func (w *Watch) Trigger() { w.wake.Trigger() }

// Run looks every 30 s and after each Trigger until ctx ends. Then it returns nil.
func (w *Watch) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return loop.Run(ctx, loop.Options{
			Name:   "environment",
			Wake:   w.wake,
			Resync: interval,
			Log:    w.Log,
			Apply: func(ctx context.Context) error {
				w.runChecks(ctx)
				return nil
			},
		})
	})
	group.Go(func() error { // separate, because the API server may not answer
		return loop.Run(ctx, loop.Options{
			Name: "events about the environment", Wake: w.newFault, Log: w.Log, Apply: w.report,
		})
	})

	return group.Wait()
}

// runChecks runs the checks of Add, and every 30 s also the checks of this package.
func (w *Watch) runChecks(ctx context.Context) {
	w.mu.Lock()
	added := w.checks
	w.mu.Unlock()

	if now := w.now(); now.Sub(w.lastLook) >= interval {
		w.lastLook = now

		w.found = run(ctx, []Check{w.kubeProxy, w.clock, w.disk, w.cgroup, w.switchAborts})
		if f := w.notReady(); f != nil {
			w.found = append(w.found, *f)
		}
	}

	found := slices.Concat(w.found, run(ctx, added))
	shown := slices.Clone(found)
	shown = slices.DeleteFunc(shown, func(f Fault) bool { return f.Reason == NotReady }) // readiness has its text

	w.mu.Lock()
	defer w.mu.Unlock()

	w.faults = shown
	w.begin(found)
}

// run returns the faults that the checks find.
func run(ctx context.Context, checks []Check) []Fault {
	var found []Fault

	for _, check := range checks {
		if f := check(ctx); f != nil {
			found = append(found, *f)
		}
	}

	return found
}

// begin notes the faults that have begun, for report. A fault that begins within eventGap after the
// last one of its reason does not become active, so it begins later if it lasts. w.mu is locked.
func (w *Watch) begin(found []Fault) {
	active := map[string]bool{}

	for _, f := range found {
		switch {
		case w.active[f.Reason]:
			active[f.Reason] = true
		case w.now().Sub(w.begun[f.Reason]) >= eventGap:
			w.Log.Warn("fault of the node's environment", "reason", f.Reason, "fault", f.Text)
			active[f.Reason] = true
			w.begun[f.Reason] = w.now()
			w.pending[f.Reason] = f
		}
	}

	w.active = active
	w.newFault.Trigger()
}

// report writes an Event for each fault that has begun. A fault that has ended before the API
// server could be reached gets its Event too.
func (w *Watch) report(ctx context.Context) error {
	w.mu.Lock()
	pending := maps.Clone(w.pending)
	w.mu.Unlock()

	var errs []error

	for _, reason := range slices.Sorted(maps.Keys(pending)) {
		if err := w.Warn(ctx, reason, pending[reason].Text); err != nil {
			errs = append(errs, err)
			continue
		}

		w.mu.Lock()
		if w.pending[reason] == pending[reason] {
			delete(w.pending, reason)
		}
		w.mu.Unlock()
	}

	return errors.Join(errs...)
}
