package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Operator commands, such as 'ovnkube node', need only the API server and run on any machine. If
// the settings have no access to it, they use kubectl's.

// operatorSettings declares the flags for the access to the API server.
func operatorSettings(f *flag.FlagSet) *settings {
	s := newSettings("")
	s.DeclareSome(f, "kubeconfig", "k8s-apiserver", "k8s-token", "k8s-token-file", "k8s-cacert")
	s.declareConfigFile(f)

	return s
}

// apiClient returns a client of the API server for an operator command.
func (s *settings) apiClient(ctx context.Context, env *environment) (kubernetes.Interface, error) {
	config, err := s.operatorConfig(ctx, env)
	if err != nil {
		return nil, err
	}

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create API client: %w", err)
	}

	return client, nil
}

// operatorConfig returns the access of operator commands to the API server. It has the same sources
// as that of controller and agent. If none has it, it is the access of kubectl.
func (s *settings) operatorConfig(ctx context.Context, env *environment) (*rest.Config, error) {
	if err := s.resolveForTool(ctx, env); err != nil {
		return nil, err
	}

	api := &s.cluster.api
	if _, isInPod := os.LookupEnv("KUBERNETES_SERVICE_HOST"); api.kubeconfig == "" && api.url == "" && !isInPod {
		if home, err := os.UserHomeDir(); err == nil {
			path := filepath.Join(home, ".kube", "config")
			if _, err := os.Stat(path); err == nil {
				api.kubeconfig = path
			}
		}
	}

	return api.restConfig()
}
