package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

// mark matches "# error: TEXT" or "# warning: TEXT" in a broken file, about its own line, or with
// ^ about the previous line.
var mark = regexp.MustCompile(`# (\^?)(error|warning): (.*\S)`)

type expected struct {
	line          int
	severity, say string
}

// config check reports exactly the errors of each file, with their lines.
func TestConfigCheckReportsEachMistake(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.conf")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}

	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			want := expectations(string(text))

			var stdout, stderr bytes.Buffer

			runErr := run(context.Background(), []string{"config", "check", "--json", path}, &stdout, &stderr)

			var got []setting.Problem
			if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
				t.Fatalf("%v: %s%s", err, stdout.String(), stderr.String())
			}

			broken := slices.ContainsFunc(want, func(e expected) bool { return e.severity == "error" })
			if code := exitCode(runErr, &stderr); code != map[bool]int{true: 1}[broken] {
				t.Errorf("exit status %d, errors expected: %v", code, broken)
			}

			compare(t, path, want, got)
		})
	}
}

func expectations(text string) []expected {
	var want []expected

	for i, line := range strings.Split(text, "\n") {
		if m := mark.FindStringSubmatch(line); m != nil {
			want = append(want, expected{i + 1 - len(m[1]), m[2], m[3]})
		}
	}

	return want
}

func compare(t *testing.T, path string, want []expected, got []setting.Problem) {
	t.Helper()

	met := make([]bool, len(want))

	for _, p := range got {
		if p.Where == "" && p.Warning { // the missing API server
			continue
		}

		for _, where := range strings.Split(cmp.Or(p.Where, "nowhere"), ", ") {
			found := false

			for i, e := range want {
				if where == fmt.Sprintf("%s:%d", path, e.line) && e.severity == severity(p) && strings.Contains(p.Message, e.say) {
					found, met[i] = true, true
				}
			}

			if !found {
				t.Errorf("not expected: %s: %s: %s", where, severity(p), p.Message)
			}
		}
	}

	for i, e := range want {
		if !met[i] {
			t.Errorf("missing: line %d: %s: %s", e.line, e.severity, e.say)
		}
	}
}

// The order of sources is command line, environment, file, external_ids, default. Each value
// reports its origin.
func TestPrecedence(t *testing.T) {
	file, err := setting.Parse("f.conf", []byte("[ovnnorth]\naddress=tcp:192.0.2.3:6641\n[default]\nmtu=1300\n"))
	if err != nil {
		t.Fatal(err)
	}

	ids := map[string]string{"ovn-nb": "tcp:192.0.2.2:6641"}
	environment := map[string]string{"OVNKUBE_NB_ADDRESS": "tcp:192.0.2.4:6641", "K8S_TOKEN": "one", "OVNKUBE_K8S_TOKEN": "two"}
	lookup := func(name string) (string, bool) { v, ok := environment[name]; return v, ok }

	tests := []struct {
		name     string
		args     []string
		from     setting.Sources
		nb, mtu  string
		nbOrigin setting.Origin
	}{
		{"nothing", nil, setting.Sources{}, "unix:/run/ovn/ovnnb_db.sock", "0", setting.Origin{}},
		{"external_ids", nil, setting.Sources{ExternalIDs: ids}, "tcp:192.0.2.2:6641", "0", setting.Origin{Source: setting.ExternalIDs, Where: "external_ids:ovn-nb"}},
		{"file", nil, setting.Sources{ExternalIDs: ids, File: file}, "tcp:192.0.2.3:6641", "1300", setting.Origin{Source: setting.FromFile, Where: "f.conf:2"}},
		{"environment", nil, setting.Sources{ExternalIDs: ids, File: file, Environment: lookup}, "tcp:192.0.2.4:6641", "1300", setting.Origin{Source: setting.Environment, Where: "$OVNKUBE_NB_ADDRESS"}},
		{"command line", []string{"-nb-address=tcp:192.0.2.5:6641", "-mtu", "1301"}, setting.Sources{ExternalIDs: ids, File: file, Environment: lookup}, "tcp:192.0.2.5:6641", "1301", setting.Origin{Source: setting.CommandLine, Where: "-nb-address"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := parsed(t, tt.args)
			if problems := s.Resolve(tt.from); len(problems) > 0 {
				t.Error(problems)
			}

			if s.cluster.nbAddress != tt.nb || fmt.Sprint(s.cluster.mtu) != tt.mtu || s.Origin("nb-address") != tt.nbOrigin {
				t.Errorf("%s, MTU %d, from %+v", s.cluster.nbAddress, s.cluster.mtu, s.Origin("nb-address"))
			}

			if want := map[bool]string{true: "two"}[tt.from.Environment != nil]; s.cluster.api.token != want {
				t.Errorf("token %q, want %q", s.cluster.api.token, want)
			}
		})
	}
}

// parsed returns the settings after parsing args.
func parsed(t *testing.T, args []string) *settings {
	t.Helper()

	s := newSettings("")
	f := flag.NewFlagSet("", flag.ContinueOnError)
	s.declare(f, allRoles)

	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}

	return s
}

// Of a kubeconfig and a server address, the one from the higher source is used.
func TestHigherSourceSelectsAPIServer(t *testing.T) {
	file, err := setting.Parse("f.conf", []byte("[kubernetes]\nkubeconfig=/file\n"))
	if err != nil {
		t.Fatal(err)
	}

	plain, err := setting.Parse("g.conf", []byte("[kubernetes]\napiserver=192.0.2.8:8080\n"))
	if err != nil {
		t.Fatal(err)
	}

	ids := map[string]string{"k8s-api-server": "http://192.0.2.1:8080", "k8s-api-token": "t", "k8s-ca-certificate": "/ca"}

	tests := []struct {
		name  string
		args  []string
		from  setting.Sources
		inPod bool
		want  apiServer
	}{
		{"OVS alone", nil, setting.Sources{ExternalIDs: ids}, false, apiServer{url: "http://192.0.2.1:8080", token: "t", caFile: "/ca"}},
		{"OVS, as ovn-kubernetes' first releases", nil, setting.Sources{ExternalIDs: map[string]string{"k8s-api-server": "127.0.0.1:8080"}}, false, apiServer{url: "http://127.0.0.1:8080"}},
		{"OVS by our own key", nil, setting.Sources{ExternalIDs: map[string]string{"ovn-ebpf-k8s-apiserver": "[::1]:8080"}}, false, apiServer{url: "http://[::1]:8080"}},
		{"flag with host and port", []string{"-k8s-apiserver=192.0.2.9:8080"}, setting.Sources{}, false, apiServer{url: "http://192.0.2.9:8080"}},
		{"file with host and port", nil, setting.Sources{File: plain}, false, apiServer{url: "http://192.0.2.8:8080"}},
		{"environment with host and port", nil, setting.Sources{Environment: func(name string) (string, bool) {
			return map[string]string{"K8S_APISERVER": "192.0.2.7:8080"}[name], name == "K8S_APISERVER"
		}}, false, apiServer{url: "http://192.0.2.7:8080"}},
		{"OVS in a pod", nil, setting.Sources{ExternalIDs: ids}, true, apiServer{}},
		{"file over OVS", nil, setting.Sources{ExternalIDs: ids, File: file}, false, apiServer{kubeconfig: "/file"}},
		{"flag over file", []string{"-k8s-apiserver=https://192.0.2.9:6443", "-k8s-token=f"}, setting.Sources{File: file}, false, apiServer{url: "https://192.0.2.9:6443", token: "f"}},
		{"both by flags", []string{"-k8s-apiserver=https://192.0.2.9:6443", "-kubeconfig=/flag"}, setting.Sources{}, true, apiServer{url: "https://192.0.2.9:6443", kubeconfig: "/flag"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := parsed(t, tt.args)
			if problems := s.Resolve(tt.from); len(problems) > 0 {
				t.Error(problems)
			}

			if err := s.resolveConflicts(tt.inPod); err != nil || s.cluster.api != tt.want {
				t.Errorf("%+v, %v; want %+v", s.cluster.api, err, tt.want)
			}
		})
	}
}

// TestExternalIDs reads external_ids from a real ovsdb-server, through config show.
func TestExternalIDs(t *testing.T) {
	sw := testnode.StartSwitch(t, false)
	testnode.Run(t, "ovs-vsctl", "--db="+sw.Address, "--no-wait", "set", "Open_vSwitch", ".",
		"external_ids:k8s-api-server=http://192.0.2.1:8080", "external_ids:k8s-api-token=secret", "external_ids:ovn-remote=tcp:192.0.2.1:6642")

	for _, name := range []string{"KUBECONFIG", "K8S_APISERVER", "KUBERNETES_SERVICE_HOST"} {
		t.Setenv(name, "") // restores it afterwards

		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}

	var stdout, stderr bytes.Buffer
	if err := run(context.Background(), []string{"config", "show", "--json", "--ovsdb", sw.Address}, &stdout, &stderr); err != nil {
		t.Fatal(err, stderr.String())
	}

	var list []shownSetting
	if err := json.Unmarshal(stdout.Bytes(), &list); err != nil {
		t.Fatal(err)
	}

	for _, want := range []shownSetting{
		{"k8s-apiserver", "kubernetes.apiserver", "http://192.0.2.1:8080", "external_ids", "external_ids:k8s-api-server"},
		{"k8s-token", "kubernetes.token", "(hidden)", "external_ids", "external_ids:k8s-api-token"},
		{"sb-address", "ovnsouth.address", "tcp:192.0.2.1:6642", "external_ids", "external_ids:ovn-remote"},
		{"ovsdb", "ovspaths.ovsdb", sw.Address, "command line", "-ovsdb"},
		{"mtu", "default.mtu", "0", "default", ""},
	} {
		if !slices.Contains(list, want) {
			t.Errorf("missing %+v in %s", want, stdout.String())
		}
	}

	if strings.Contains(stdout.String(), "secret") {
		t.Error("the token is printed")
	}
}
