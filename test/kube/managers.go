package kube

import (
	"path/filepath"
)

// Managers returns the command lines of the controller manager and of the scheduler by program
// name, for programs in dir. The server must have been started by this process, as Managed.
func (s *Server) Managers(dir, cluster string) (map[string][]string, error) {
	argv := map[string][]string{}
	for _, p := range []struct {
		program string
		args    []string
	}{
		{"kube-controller-manager", []string{
			"--service-account-private-key-file", filepath.Join(s.PKI(), "service-account.key"), "--root-ca-file", filepath.Join(s.PKI(), "ca.crt"),
			"--use-service-account-credentials", "--cluster-name", cluster,
		}},
		{"kube-scheduler", nil},
	} {
		config, err := s.Identity(p.program, "system:"+p.program, nil)
		if err != nil {
			return nil, err
		}
		argv[p.program] = append([]string{
			filepath.Join(dir, p.program), "--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config,
			"--leader-elect=false", "--bind-address", "127.0.0.1",
		}, p.args...)
	}
	return argv, nil
}
