package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	corev1 "k8s.io/api/core/v1"
)

// capabilities are what each role has, everywhere: systemd's units and the manifests.
var capabilities = map[string][]string{"agent": {"CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN"}, "controller": nil}

// TestCapabilities: no container that stays is privileged, and each has the capabilities of its
// role and no others. That the agent can do its work so is shown by make e2e.
func TestCapabilities(t *testing.T) {
	objects := complete(t, member)
	maps.Copy(objects, complete(t, member, "-set=uninstall=true"))

	agents := 0

	for key, pod := range podSpecs(objects) {
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			s := c.SecurityContext
			if s == nil || s.SeccompProfile == nil && c.Name != "mount-bpffs" {
				t.Errorf("%s %s: security context %v", key, c.Name, s)
				continue
			}

			if s.Privileged != nil && *s.Privileged {
				if c.Name != "mount-bpffs" {
					t.Errorf("%s %s is privileged", key, c.Name)
				}

				continue
			}

			var want []corev1.Capability

			if len(c.Args) > 0 && c.Args[0] == "agent" {
				agents++

				for _, name := range capabilities["agent"] {
					want = append(want, corev1.Capability(strings.TrimPrefix(name, "CAP_")))
				}
			}

			if c.Name == "vswitchd" {
				want = []corev1.Capability{"NET_ADMIN", "NET_RAW"}
			}

			if s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, want) {
				t.Errorf("%s %s: capabilities %v, want %v beside none", key, c.Name, s.Capabilities, want)
			}
		}
	}

	if agents != 2 {
		t.Errorf("%d containers run the agent, want 2: the DaemonSet's, and the cleanup's", agents)
	}
}

// TestUnits: systemd's units fit the programs: type notify, no time limit on the start, and
// executables that exist.
func TestUnits(t *testing.T) {
	units, err := filepath.Glob("systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatal(units, err)
	}

	for _, path := range units {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}

		options, err := unit.DeserializeOptions(f)
		f.Close()

		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}

		values := map[string]string{}
		for _, o := range options {
			values[o.Section+"."+o.Name] = o.Value
		}

		for name, want := range map[string]string{
			"Service.Type": "notify", "Service.TimeoutStartSec": "infinity", "Service.EnvironmentFile": "-/etc/default/ovn-ebpf", "Install.WantedBy": "multi-user.target",
		} {
			if values[name] != want {
				t.Errorf("%s: %s is %q, want %q", path, name, values[name], want)
			}
		}

		role := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "ovn-ebpf-"), ".service")

		bounds, set := values["Service.CapabilityBoundingSet"]
		if got := strings.Fields(bounds); !set || !slices.Equal(got, capabilities[role]) {
			t.Errorf("%s: capabilities %q, want %q", path, got, capabilities[role])
		}

		command, found := strings.CutPrefix(values["Service.ExecStart"], "/usr/bin/ovnkube ")
		if out, err := exec.Command(ovnkube(t), append(strings.Fields(command), "--help")...).CombinedOutput(); err != nil || !found {
			t.Errorf("%s: %q: %v: %s", path, values["Service.ExecStart"], err, out)
		}
	}
}

// TestDefaultsFile: each variable of /etc/default is a setting's, with a value that it can have.
func TestDefaultsFile(t *testing.T) {
	text, err := os.ReadFile("systemd/ovn-ebpf.default")
	if err != nil {
		t.Fatal(err)
	}

	lines := regexp.MustCompile(`(?m)^#(OVNKUBE_\w+=\S+)$`).FindAllStringSubmatch(string(text), -1)
	if len(lines) < 5 {
		t.Fatalf("%d variables", len(lines))
	}

	cmd := exec.Command(ovnkube(t), "config", "show", "--ovsdb", "unix:"+t.TempDir()+"/none")
	for _, l := range lines {
		cmd.Env = append(cmd.Env, l[1])
	}

	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	for _, l := range lines {
		name, _, _ := strings.Cut(l[1], "=")
		if !strings.Contains(string(out), "$"+name) {
			t.Errorf("%s is no setting's:\n%s", l[1], out)
		}
	}
}
