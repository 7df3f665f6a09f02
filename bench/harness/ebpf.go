package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/ovn-ebpf/ovn-ebpf/bench"
)

// ebpf is ours, layout direct.
type ebpf struct {
	ovs ovs
	log *slog.Logger
}

func (*ebpf) traits() traits { return traits{name: bench.EBPF, layout: "direct"} }

func (*ebpf) setup(context.Context) error { return errors.New("not yet") }

func (*ebpf) watch(context.Context, test) (func(int) error, error) { return nil, errors.New("not yet") }
