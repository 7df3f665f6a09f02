package main

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

// An error in combined settings names their sources.
func TestOriginOfBadSettings(t *testing.T) {
	file, err := setting.Parse("f.conf", []byte("[gateway]\nvlan-id=7\n"))
	if err != nil {
		t.Fatal(err)
	}

	s := parsed(t, []string{"-k8s-apiserver=http://127.0.0.1:1", "-mtu=100"})
	s.Disregard("gateway-nexthop")

	problems := s.Resolve(setting.Sources{
		File:        file,
		Environment: func(name string) (string, bool) { return "fe80::1", name == "OVNKUBE_ENCAP_IP" },
		ExternalIDs: map[string]string{"ovn-ebpf-gateway-layout": "dedicated", "ovn-ebpf-gateway-nexthop": "not looked at"},
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}

	s.agent.nodeName = "node1"
	_, err = s.agent.config(s.cluster)

	got := strings.Join(lines(s.located(err)), "\n")
	for _, want := range []string{
		"(mtu is from -mtu)", "(encap-ip is from $OVNKUBE_ENCAP_IP)", "layout dedicated wants one", "(gateway-layout is from external_ids:ovn-ebpf-gateway-layout)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("does not say %q:\n%s", want, got)
		}
	}

	if s.located(nil) != nil {
		t.Error("nil became an error")
	}
}
