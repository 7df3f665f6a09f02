package underlay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/status"
)

func TestConfig_mistakesNameTheirField(t *testing.T) {
	valid := Config{
		NodeName: "vm1", RestConfig: &rest.Config{}, VIF: vif, Rest: time.Minute,
		PinDir: "/pins", RunDir: "/run/x", CNISocket: "/run/x/cni.sock", MetricsAddr: "127.0.0.1:9410",
	}
	for _, tc := range []struct {
		change func(*Config)
		say    string // "": the configuration is valid
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.VIF, c.MetricsAddr = "", "" }, ""},
		{func(c *Config) { c.NodeName = "" }, "node name"},
		{func(c *Config) { c.RestConfig = nil }, "kubeconfig"},
		{func(c *Config) { c.VIF = "eth0" }, "VIF"},
		{func(c *Config) { c.Rest = -1 }, "rest of ports"},
		{func(c *Config) { c.PinDir = "pins" }, "pin directory"},
		{func(c *Config) { c.RunDir = "" }, "run directory"},
		{func(c *Config) { c.CNISocket = "cni.sock" }, "CNI socket"},
		{func(c *Config) { c.MetricsAddr = "9410" }, "metrics address"},
		{func(c *Config) { c.MetricsTLS.Key = "key.pem" }, "metrics"},
	} {
		c := valid
		tc.change(&c)

		err := c.Validate()
		if (err != nil) != (tc.say != "") || err != nil && !strings.Contains(err.Error(), tc.say) {
			t.Errorf("%q: got %v", tc.say, err)
		}
	}
}

// An agent that has not got to work leaves nothing that an agent of the other mode must respect.
func TestConfig_failDoesNotSetTheMode(t *testing.T) {
	c := testConfig(t)
	if err := c.Fail(errors.New("kubeconfig: none given")); err != nil {
		t.Fatal(err)
	}

	r, err := status.Read(c.RunDir)
	if err != nil || r.Failure != "kubeconfig: none given" || r.Node != "vm1" || r.Underlay() {
		t.Errorf("record %+v, error %v", r, err)
	}

	if err := status.CheckMode(c.RunDir, false); err != nil {
		t.Error(err)
	}
}
