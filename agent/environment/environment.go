package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Prefixes of the lines of /readyz: of a fault, and of a warning, which does not degrade the node.
const (
	Prefix  = "degraded: "
	Warning = "warning: "
)

// Reasons of Kubernetes Events about the Node.
const (
	KubeProxyRuns = "KubeProxyRuns"
	ClockDiffers  = "ClockDiffers"
	DiskFull      = "DiskFull"
	NoCgroup2     = "NoCgroup2"
	SwitchAborts  = "SwitchAborts"
	NotReady      = "NetworkNotReady"

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

	// AgentFailed is of an agent that has ended with an error.
	AgentFailed = "AgentFailed"
)

const (
	interval = 30 * time.Second // between two looks at the whole environment
	eventGap = time.Minute      // between two Events of one reason: a fault may come and go
	wait     = 3 * time.Second  // for one answer
	maxSkew  = 5 * time.Minute  // Kubernetes' own certificates and leases tolerate less than an hour
	minFree  = 1 << 20          // bytes
	maxReply = 64               // bytes of kube-proxy's answer
	maxEvent = 900              // bytes; the API server refuses messages of more than 1,024
)

// Options configure a Watch.
type Options struct {
	// KubeProxy is the URL at which kube-proxy says its mode, http://127.0.0.1:10249/proxyMode by
	// default.
	KubeProxy string
	// Server is the URL of the API server, and Client a client for it. Without a Client the clock
	// is not compared.
	Server string
	Client *http.Client
	// Cgroup returns an error if the host's sockets cannot be watched; nil is not asked.
	Cgroup func() error
	// SwitchAborts reports whether connections of pods can abort the running ovs-vswitchd; nil is
	// not asked.
	SwitchAborts func(context.Context) (bool, error)
	// Dirs are directories in which the agent, Open vSwitch or OVN's databases write. Missing ones
	// are ignored.
	Dirs []string
	// Missing returns what keeps the node from being ready; nil is not asked.
	Missing func() []string
	// Warn writes an Event about the Node. It is called once for each fault that begins, and at
	// most once per minute for each reason.
	Warn func(ctx context.Context, reason, message string) error
	Log  *slog.Logger
}

// Fault is one fault of the node, with what helps.
type Fault struct {
	Reason string // of the Event
	Text   string
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
type Watch struct {
	Options
	client http.Client // for kube-proxy

	wake     loop.Signal      // triggers runChecks
	newFault loop.Signal      // triggers report
	now      func() time.Time // time.Now, except in tests

	mu      sync.Mutex // guards the following fields
	faults  []Fault
	checks  []Check              // see Add
	active  map[string]bool      // reasons of present faults that have or get an Event
	begun   map[string]time.Time // by reason: when the last fault began that has or gets an Event
	pending map[string]Fault     // Events to write, by reason

	// The goroutine of runChecks owns these.
	lastLook time.Time // when the whole environment was looked at last
	found    []Fault   // at that time
	unready  int       // looks in a row at which something was missing
}

// Check returns a fault, or nil.
type Check func(context.Context) *Fault

// New returns a Watch that does not run yet.
func New(o Options) *Watch {
	if o.KubeProxy == "" {
		o.KubeProxy = "http://127.0.0.1:10249/proxyMode"
	}

	return &Watch{
		Options: o, wake: loop.NewSignal(), newFault: loop.NewSignal(), now: time.Now,
		begun: map[string]time.Time{}, pending: map[string]Fault{},
		client: http.Client{Timeout: wait, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// Faults returns the faults that the last look has found.
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

// runChecks runs the checks of Add, and every 30 s all others.
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

// notReady returns a fault when something has been missing for two looks. A start takes less.
func (w *Watch) notReady() *Fault {
	if w.Missing == nil {
		return nil
	}

	missing := w.Missing()
	if len(missing) == 0 {
		w.unready = 0
		return nil
	}

	w.unready++
	if w.unready < 2 {
		return nil
	}

	text := strings.Join(missing, "; ")
	if len(text) > maxEvent {
		text = text[:maxEvent]
	}

	return &Fault{NotReady, text + "; ovnkube status on the node says what helps"}
}

// begin notes the faults that have begun, for report. w.mu is locked.
func (w *Watch) begin(found []Fault) {
	active := map[string]bool{}

	for _, f := range found {
		switch {
		case w.active[f.Reason]:
			active[f.Reason] = true
		case w.now().Sub(w.begun[f.Reason]) >= eventGap: // otherwise later, if it lasts
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

// kubeProxy finds a kube-proxy that runs in the host's network. It and the agent both translate
// Services, and a Service's endpoints may differ between the two.
func (w *Watch) kubeProxy(ctx context.Context) *Fault {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.KubeProxy, http.NoBody)
	if err != nil {
		return nil
	}

	response, err := w.client.Do(request)
	if err != nil {
		return nil // nothing listens
	}
	defer response.Body.Close()

	mode, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil || response.StatusCode != http.StatusOK {
		return nil // another program
	}

	switch m := strings.TrimSpace(string(mode)); m {
	case "iptables", "ipvs", "nftables":
		return &Fault{
			KubeProxyRuns,
			"kube-proxy runs on this node, in mode " + m + ", and translates Services too; " +
				"delete its DaemonSet (kubectl -n kube-system delete daemonset kube-proxy), then run kube-proxy --cleanup or restart the node",
		}
	}

	return nil
}

// clock compares this node's clock with that of the API server. An API server that does not answer
// is reported elsewhere.
func (w *Watch) clock(ctx context.Context) *Fault {
	if w.Client == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimRight(w.Server, "/")+"/version", http.NoBody)
	if err != nil {
		return nil
	}

	response, err := w.Client.Do(request)
	if err != nil {
		return nil
	}

	response.Body.Close()

	theirs, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return nil
	}

	skew := time.Since(theirs).Round(time.Second)
	if skew.Abs() <= maxSkew {
		return nil
	}

	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}

	text := fmt.Sprintf(
		"this node's clock is %s %s the API server's: certificates and leases may be taken for expired; "+
			"synchronise both clocks (chrony, systemd-timesyncd)", skew.Abs(), direction)

	return &Fault{ClockDiffers, text}
}

// disk finds directories in which nothing can be written. Open vSwitch and the agent lose no state
// by that, but changes do not survive a restart. OVN's databases refuse changes.
func (w *Watch) disk(context.Context) *Fault {
	var full []string

	for _, dir := range w.Dirs {
		var s syscall.Statfs_t
		if err := syscall.Statfs(dir, &s); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				full = append(full, fmt.Sprintf("%s (%v)", dir, err))
			}

			continue
		}

		free := uint64(math.MaxUint64) // file systems without a limit report no blocks
		if s.Blocks > 0 {
			free = s.Bavail * uint64(s.Bsize) //nolint:gosec // a block's size is positive
		}

		if free < minFree || s.Files > 0 && s.Ffree == 0 {
			full = append(full, dir)
		}
	}

	if full == nil {
		return nil
	}

	dirs := strings.Join(full, ", ")

	return &Fault{DiskFull, "no space left in " + dirs + ": changes do not survive a restart; free space there"}
}

// cgroup finds a host without the unified hierarchy.
func (w *Watch) cgroup(context.Context) *Fault {
	if w.Cgroup == nil {
		return nil
	}

	if err := w.Cgroup(); err != nil {
		return &Fault{
			NoCgroup2,
			err.Error() + ": the host's own sockets reach Services on a longer path, " +
				"and its ports inside the SNAT range are seen late; " +
				"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or name its mount with --cgroup-path",
		}
	}

	return nil
}

// switchAborts finds a release of Open vSwitch that pods can abort. An ovs-vswitchd that does not
// answer is reported elsewhere.
func (w *Watch) switchAborts(ctx context.Context) *Fault {
	if w.SwitchAborts == nil {
		return nil
	}

	if aborts, err := w.SwitchAborts(ctx); err != nil || !aborts {
		return nil
	}

	return &Fault{
		SwitchAborts,
		"Open vSwitch before 3.3 runs with its userspace datapath: any pod can abort ovs-vswitchd, " +
			"and so interrupt every pod of this node, if it connects again from the same source port; " +
			"use the kernel's datapath or Open vSwitch 3.3",
	}
}
