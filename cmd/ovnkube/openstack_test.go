package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// openstackRequired are the settings without a default, as flags.
var openstackRequired = map[string]string{
	"cloud":           "mycloud",
	"router-id":       "0a0a0a0a-0000-4000-8000-000000000001",
	"subnet-pool":     "0a0a0a0a-0000-4000-8000-000000000002",
	"security-groups": "0a0a0a0a-0000-4000-8000-000000000003",
}

// In underlay mode, an error names each setting that is missing, and only those.
func TestOpenstackFlags_required(t *testing.T) {
	for missing := range openstackRequired {
		args := []string{"--mode=underlay"}

		for flag, value := range openstackRequired {
			if flag != missing {
				args = append(args, "--"+flag+"="+value)
			}
		}

		err := parsed(t, args).controller.openstack.checkRequired()
		if err == nil || strings.Count(err.Error(), "is not set") != 1 ||
			!strings.Contains(err.Error(), "--"+missing+" is not set: underlay mode needs ") {
			t.Errorf("without --%s: %v", missing, err)
		}
	}

	var all []string
	for flag, value := range openstackRequired {
		all = append(all, "--"+flag+"="+value)
	}

	if err := parsed(t, all).controller.openstack.checkRequired(); err != nil {
		t.Errorf("with all settings: %v", err)
	}
}

// The file of an agent has no settings of OpenStack. A file that has some needs all.
func TestConfigCheck_openstack(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--mode=underlay"}, "0 errors"},
		{[]string{"--mode=underlay", "--workers=3"}, "4 errors"},
		{[]string{"--mode=overlay", "--workers=3"}, "0 errors"},
	} {
		var stdout, stderr bytes.Buffer

		args := append([]string{"config", "check", "testdata/empty.conf"}, tt.args...)

		err := run(context.Background(), args, &stdout, &stderr)
		if !strings.Contains(stdout.String(), tt.want) {
			t.Errorf("%v: %v, want %s: %s%s", tt.args, err, tt.want, stdout.String(), stderr.String())
		}
	}
}
