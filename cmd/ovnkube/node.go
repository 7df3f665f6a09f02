package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/controller/drain"
)

const drainDetail = `Pods on nodes without a gateway leave by other gateways than this one, and load balancers that ask the node's
health checks (healthCheckNodePort, port 10256) get 503 and go elsewhere. Then it waits until the controller has
changed the routes. It runs anywhere where the API server is reached, as with kubectl's kubeconfig.

  ovnkube node drain-gateway node3               before maintenance of node3
  ovnkube node drain-gateway node3 --undo        after it; undrain-gateway is the same

What goes on: connections that come in by this gateway (LoadBalancer, NodePort), and all of its own pods and host.
What does not: a TCP connection of a pod elsewhere that left by this gateway has a new source address at the other
and must be made again, as whenever a gateway goes. Pods of the node itself are moved by 'kubectl drain'.
It stays drained, over restarts of everything, until it is undone: it is an annotation of the Node
(ovn-ebpf.io/drain-gateway), and 'ovnkube status' there says so. The last gateway is not drained without --force.`

func nodeCommands() *command {
	return &command{name: "node", summary: "prepare a node for maintenance", children: []*command{
		{
			name: "drain-gateway", arguments: "NODE", summary: "move North-South traffic of others away from a node's gateway", detail: drainDetail,
			setup: func(f *flag.FlagSet) action {
				undo := f.Bool("undo", false, "bring the gateway back instead")
				force := f.Bool("force", false, "drain it even if it is the last one: what leaves by it is cut off")
				return drainAction(f, undo, force)
			},
		},
		{
			name: "undrain-gateway", arguments: "NODE", summary: "bring it back: the same as drain-gateway --undo",
			setup: func(f *flag.FlagSet) action { return drainAction(f, new(true), new(false)) },
		},
	}}
}

func drainAction(f *flag.FlagSet, undo, force *bool) action {
	s := newSettings("")
	s.DeclareSome(f, "kubeconfig", "k8s-apiserver", "k8s-token", "k8s-token-file", "k8s-cacert")
	f.StringVar(&s.configFile, "config-file", "", "`file` with settings; default: "+defaultConfigFile+" where it is there")
	timeout := f.Duration("timeout", time.Minute, "how `long` to wait for the routes")
	return func(ctx context.Context, args []string, env *environment) error {
		if len(args) == 0 {
			return errors.New("which node? Its name, as 'kubectl get nodes' has it")
		}
		if err := f.Parse(args[1:]); err != nil { // flags may follow the name, too
			return fmt.Errorf("%w; --help goes before the name", err)
		}
		if err := noArguments(f.Args()); err != nil {
			return err
		}
		config, err := s.operator(ctx, env)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("create API client: %w", err)
		}
		return drain.Gateway(ctx, client, drain.Options{Node: args[0], Back: *undo, Force: *force, Timeout: *timeout, Out: env.stdout})
	}
}

// operator is how a person's command reaches the API server: as the roles do, else
// as kubectl does. What else is wrong in the file is no reason not to.
func (s *settings) operator(ctx context.Context, env *environment) (*rest.Config, error) {
	problems, err := s.resolve(ctx, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	for _, p := range problems {
		if !p.Warning {
			fmt.Fprintln(env.stderr, "warning:", p)
		}
	}
	api := &s.cluster.api
	if _, inPod := os.LookupEnv("KUBERNETES_SERVICE_HOST"); api.kubeconfig == "" && api.url == "" && !inPod {
		if home, err := os.UserHomeDir(); err == nil {
			path := filepath.Join(home, ".kube", "config")
			if _, err := os.Stat(path); err == nil {
				api.kubeconfig = path
			}
		}
	}
	return api.restConfig()
}
