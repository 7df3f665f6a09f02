package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/commandline"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

func exitCode(err error, stderr io.Writer) int { return commandline.Status("ovnkube", err, stderr) }

// The command lines in ovn-kubernetes' documents are understood, with one dash or two.
func TestSecondGeneration(t *testing.T) {
	const line = `-k8s-kubeconfig kubeconfig.yaml -loglevel=4 -k8s-apiserver=http://192.0.2.1:8080 -logfile=/var/log/ovn-kubernetes/ovnkube.log
-cluster-subnets=10.244.0.0/16 -k8s-service-cidr=10.96.0.0/16 -nodeport -init-gateways -gateway-local -k8s-token=t -k8s-cacert=/ca
-nb-address=tcp:192.0.2.1:6641 -nb-client-privkey=/k -nb-client-cert=/c -nb-client-cacert=/a
-sb-address=tcp:192.0.2.1:6642 -sb-client-privkey=/k -sb-client-cert=/c -sb-client-cacert=/a
-gateway-interface=enp0s9 -gateway-nexthop=192.0.2.254 -gateway-vlanid=0 -mtu=1400 -encap-ip=192.0.2.7 -encap-port=6081 -conntrack-zone=64000
-metrics-bind-address=0.0.0.0:9410 -join-subnets=100.65.0.0/16,fd99::/64 -enable-egress-ip=false -enable-multicast`

	for _, dash := range []string{"-", "--"} {
		t.Run(dash, func(t *testing.T) {
			args := strings.Fields(line)
			for i, a := range args {
				if strings.HasPrefix(a, "-") {
					args[i] = dash + strings.TrimPrefix(a, "-")
				}
			}

			s := parsed(t, args)

			var warned []string
			for _, p := range s.Resolve(setting.Sources{}) {
				warned = append(warned, p.String())
			}

			got := strings.Join(warned, "\n")
			for _, want := range []string{
				"-k8s-service-cidr: deprecated, use -k8s-service-cidrs", "-gateway-local: deprecated, use -gateway-mode",
				"-init-gateways: deprecated, use -gateway-mode", "-conntrack-zone: no effect", "-enable-multicast: no effect",
			} {
				if !strings.Contains(got, want) {
					t.Errorf("no warning %q in:\n%s", want, got)
				}
			}

			if len(warned) != 5 {
				t.Errorf("%d warnings, want 5:\n%s", len(warned), got)
			}

			if s.agent.gateway.mode != gatewayModeLocal || s.cluster.serviceCIDRs.String() != "10.96.0.0/16" || s.cluster.api.kubeconfig != "kubeconfig.yaml" ||
				s.controller.join4.String() != "100.65.0.0/16" || s.controller.join6.String() != "fd99::/64" || !s.agent.servesNodePorts {
				t.Errorf("not taken over: %+v %+v %+v", s.cluster, s.controller, s.agent)
			}
		})
	}
}

// -init-gateways=false selects mode none.
func TestInitGateways(t *testing.T) {
	if s := parsed(t, []string{"-init-gateways=false"}); s.agent.gateway.mode != gatewayModeNone {
		t.Errorf("mode %s", s.agent.gateway.mode)
	}

	if s := parsed(t, []string{"-init-gateways"}); s.agent.gateway.mode != gatewayModeShared {
		t.Errorf("mode %s", s.agent.gateway.mode)
	}
}

// A role logs each warning about its command line once, even if a flag is given twice.
func TestWarnsOnce(t *testing.T) {
	var stdout, stderr bytes.Buffer

	err := run(context.Background(), []string{
		"agent", "-k8s-apiserver=http://127.0.0.1:1", "-k8s-service-cidr=10.1.0.0/16", "-k8s-service-cidr=10.2.0.0/16",
		"-node-name=n", "-gateway-interface=nosuch0", "-run-dir=" + t.TempDir(),
	}, &stdout, &stderr)
	if err == nil || strings.Count(stderr.String(), "use -k8s-service-cidrs") != 1 {
		t.Errorf("%v, log: %s", err, stderr.String())
	}
}

// A role does not start with mistakes in its file, and reports all of them on one line.
func TestRefusesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ovn_k8s.conf")
	if err := os.WriteFile(path, []byte("[default]\nmtu=x\n[gateway]\nlayout=y\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, args := range [][]string{{"agent"}, {"controller"}, {"-init-node=n"}} {
		var stdout, stderr bytes.Buffer

		err := run(context.Background(), append(args, "--config-file", path), &stdout, &stderr)
		if code := exitCode(err, &stderr); code != 1 {
			t.Errorf("exit status %d", code)
		}

		for _, want := range []string{path + `:2: mtu: "x"`, path + `:4: gateway-layout: "y"`} {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%v: no %q in %s", args, want, stderr.String())
			}
		}
	}
}

// A log that has reached its size is renamed.
func TestLogRotation(t *testing.T) {
	dir := t.TempDir()
	s := parsed(t, []string{"-logfile=" + dir + "/ovnkube.log", "-logfile-maxsize=1", "-logfile-maxbackups=2"})

	log := s.cluster.log.open(os.Stderr)
	for range 1500 {
		log.Info("a kilobyte", slog.String("of", strings.Repeat("x", 1024)))
	}

	files, err := filepath.Glob(dir + "/ovnkube*.log")
	if err != nil || len(files) != 2 {
		t.Errorf("%v, %v: want the log and one that was renamed", files, err)
	}

	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Size() > 1<<20 || info.Size() == 0 {
			t.Errorf("%s: %v, %v", f, info.Size(), err)
		}
	}
}
