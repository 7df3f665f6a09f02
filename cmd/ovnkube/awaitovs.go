package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent"
	agentenv "github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/ovnd"
)

func awaitOVSCommand(f *flag.FlagSet) action {
	s := newSettings(agentMetrics)
	s.declareConfigFile(f)
	s.DeclareSome(f, "kubeconfig", "k8s-apiserver", "k8s-token", "k8s-token-file", "k8s-cacert", "node-name",
		"run-dir", "ovs-rundir", "metrics-bind-address", "node-server-cert", "node-server-privkey",
		"metrics-client-ca-file")
	reportAfter := f.Duration("report-after", 30*time.Second,
		"`time` after which the log and an Event about the Node say what this waits for")

	return func(ctx context.Context, args []string, env *environment) error {
		if err := noArguments(args); err != nil {
			return err
		}

		rest, err := s.operatorConfig(ctx, env)
		if err != nil {
			return err
		}

		w := &switchWait{config: s.agent.uncheckedConfig(s.cluster, rest), log: env.log()}

		return w.run(ctx, *reportAfter)
	}
}

// switchWait waits for Open vSwitch before the agent starts. Until then it answers the agent's
// health checks at its metrics address, with the reason of the wait.
type switchWait struct {
	config agent.Config
	log    *slog.Logger
	reason atomic.Pointer[string] // from the last attempt
}

// run returns when Open vSwitch's database is there and initialised. Every reportAfter, it tries
// again and logs what it waits for. The first time, it also writes an Event about the Node.
func (w *switchWait) run(ctx context.Context, reportAfter time.Duration) error {
	ctx, end := context.WithCancel(ctx)
	defer end()

	w.setReason(errors.New("its database has not answered yet"))

	serverEnded := make(chan struct{})
	go func() {
		defer close(serverEnded)

		if err := w.config.Wait(ctx, func() string { return *w.reason.Load() }, w.log); err != nil {
			w.log.Warn("/readyz is not answered", "error", err)
		}
	}()

	s := ovnd.Switch{RunDir: w.config.OVSRunDir}

	for isReported := false; ; isReported = true {
		attemptCtx, cancel := context.WithTimeout(ctx, reportAfter)

		err := s.Await(attemptCtx)
		if err == nil || ctx.Err() != nil {
			cancel()
			end()
			<-serverEnded // the agent serves at the same address

			return err
		}

		w.setReason(err)
		w.log.Warn("waiting for Open vSwitch: look at the node's pod of ovn-ebpf-ovs", "error", err)

		if !isReported {
			warnNode(ctx, w.config.API(w.log), w.config.NodeName, agentenv.NotReady, *w.reason.Load(), w.log)
		}

		// Await may return early, for example if the database is that of another Open vSwitch.
		<-attemptCtx.Done()
		cancel()
	}
}

func (w *switchWait) setReason(err error) {
	text := fmt.Sprintf("the agent waits for Open vSwitch: %v; look at the node's pod of ovn-ebpf-ovs", err)
	w.reason.Store(&text)
}
