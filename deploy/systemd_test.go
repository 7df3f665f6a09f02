package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
)

// TestUnits: systemd's units say what the programs do: they tell when they are ready, nobody
// stops waiting for that, and what they start exists.
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
