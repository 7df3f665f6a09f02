package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent"
	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
	"github.com/ovn-ebpf/ovn-ebpf/agent/underlay"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/daemon"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// cleanUpNode removes ovn-ebpf from this node, instead of running the agent.
func cleanUpNode(ctx context.Context, env *environment, s *settings) error {
	log, mistakes, err := s.loadForNode(ctx, env)
	if err != nil {
		return err
	}

	return s.cleanUp(ctx, mistakes, log)
}

// cleanUp removes the state of the last agent from the node. mistakes are those of the
// configuration: nothing is removed with mistakes.
func (s *settings) cleanUp(ctx context.Context, mistakes error, log *slog.Logger) error {
	// The node may be configured for the other mode since the last agent ran.
	isUnderlay := s.cluster.mode == modeUnderlay
	if recorded, err := status.IsUnderlay(s.agent.runDir); err == nil {
		isUnderlay = recorded
	}

	var (
		remove func(context.Context) error
		err    error
	)

	if isUnderlay {
		var config underlay.Config

		config, err = s.agent.underlayConfig(s.cluster)
		remove = func(context.Context) error { return underlay.Cleanup(config) }
	} else {
		var config agent.Config

		config, err = s.agent.config(s.cluster)
		remove = func(ctx context.Context) error {
			return errors.Join(agent.Cleanup(ctx, config, log), s.removeExternalIDs(ctx))
		}
	}

	if err := cmp.Or(mistakes, s.located(err)); err != nil {
		return err
	}

	if err := s.awaitAgentEnd(ctx, log); err != nil {
		return err
	}

	return remove(ctx)
}

// awaitAgentEnd waits until no agent runs on this node, as an agent would undo the cleanup. With
// the manifests, the cleanup starts while kubelet still stops the agent.
func (s *settings) awaitAgentEnd(ctx context.Context, log *slog.Logger) error {
	path := filepath.Join(s.agent.runDir, agentPIDFile)

	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()

	for isLogged := false; ; isLogged = true {
		pid, err := daemon.Running(path)
		switch {
		case err == nil && pid == 0:
			return nil
		case err != nil && !errors.Is(err, daemon.ErrRunning):
			return err
		case !isLogged:
			log.Info("waiting for the agent on this node to end", "pid-file", path)
		}

		if !loop.Pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("clean up node: an agent still runs and would undo the cleanup, stop it first (pid file %s)",
				path)
		}
	}
}

// removeExternalIDs removes the settings that are stored in Open vSwitch under keys of ovn-ebpf.
func (s *settings) removeExternalIDs(ctx context.Context) error {
	keys := map[string]string{} // with empty values, which remove them

	for key := range s.externalIDs(ctx) {
		if setting.OwnExternalID(key) {
			keys[key] = ""
		}
	}

	if len(keys) == 0 {
		return nil
	}

	o, err := s.dialOVS(ctx)
	if err != nil {
		return err
	}
	defer o.Close()

	return o.SetExternalIDs(ctx, keys)
}
