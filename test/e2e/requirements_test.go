package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirements are those of the design notes ("What must be right"), in the same order, with the
// tests of each. A test skips itself in layouts where it does not apply. test/vm/suite -a runs all
// others in layouts direct and bridged, and in the other layouts those whose outcome depends on the
// datapath.
var requirements = []struct {
	item  string
	tests []string // below TestEndToEnd, or top-level
}{
	{"a pod binds 22, 6081, 10250 and sweeps a peer's ports", []string{"field/a pod binds 22, 6081, 10250 and sweeps a peer's ports"}},
	{"a pod's connection survives an idle hour", []string{"field/an idle hour"}},
	{"it survives an agent restart", []string{"field/the remote speaks first", "agent restarts under load"}},
	{"it survives a vswitchd restart", []string{"field/the remote speaks first"}},
	{"the remote speaks first", []string{"field/the remote speaks first"}},
	{"ICMP port unreachable reaches the side whose packet it quotes", []string{"field/ICMP port unreachable"}},
	{"ping -s 4000 to host and pod", []string{"field/ping of 4000 bytes"}},
	{"PMTUD to a VIP", []string{"field/PMTUD to a NodePort and an announced address"}},
	{"jumbo uplink", []string{"field/jumbo uplink"}},
	{"VLAN uplink", []string{"TestUplinks/VLAN uplink", "TestGatewayVLAN"}},
	{"bond failover with a new MAC", []string{"TestUplinks/bond failover with a new MAC"}},
	{"IPv6 with extension headers", []string{"field/IPv6 with extension headers"}},
	{"ND", []string{"paths/outside to host, port 22"}}, // whatever is IPv6
	{"DAD", []string{"field/IPv6 duplicate address detection"}},
	{"RA", []string{"field/a router advertises itself"}},
	{"GRE from a pod", []string{"field/GRE from a pod"}},
	{"a load balancer's address announced by the host", []string{"field/a load balancer's address on the host", "paths/outside to an announced address"}},
	{"pod to its own node's addresses", []string{"paths/pod to its own node"}},
	{"pod to another node's addresses", []string{"paths/pod to another node"}},
	{"pod to a NodePort of its own node", []string{"paths/pod to a NodePort of its own node"}},
	{"host to NodePort of itself", []string{"paths/host to its own NodePort"}},
	{"host-network endpoint behind a NodePort of the same node", []string{"paths/outside to a host behind its own NodePort", "field/a host behind a local NodePort"}},
	{"UDP service whose endpoint goes away", []string{"field/a UDP service whose endpoint goes away"}},
	{"oversized GSO packets, checksum offload on and off", []string{"field/checksum offload on and off"}},
	{"del-br and add-br", []string{"repair/bridge deleted"}},
	{"uplink down and up", []string{"repair/uplink down and up"}},
	{"agent SIGKILL at any point of start-up", []string{"field/SIGKILL at any point of start-up"}},
	{"70 gateway routers must not multiply an ARP reply", []string{"field/one answer to an ARP request, with 70 gateway routers"}},
	{"a host process listening inside the SNAT range", []string{"field/a host process that listens inside the SNAT range"}},
}

// requiredPaths returns the paths in the list, for runs without all paths.
func requiredPaths() []string {
	var names []string

	for _, r := range requirements {
		for _, name := range r.tests {
			if path, found := strings.CutPrefix(name, "paths/"); found {
				names = append(names, path)
			}
		}
	}

	return names
}

// Every requirement names tests that exist.
func TestRequirements_nameTests(t *testing.T) {
	known := []string{"agent restarts under load", "TestGatewayVLAN", "TestUplinks/VLAN uplink", "TestUplinks/bond failover with a new MAC"}
	for _, f := range fieldTests {
		known = append(known, "field/"+f.name)
	}

	for _, r := range repairs {
		known = append(known, "repair/"+r.name)
	}

	for _, p := range (&Cluster{}).everyPath() {
		known = append(known, "paths/"+p.Name)
	}

	for _, r := range requirements {
		for _, name := range r.tests {
			if !slices.Contains(known, name) {
				t.Errorf("%s: there is no test %q", r.item, name)
			}
		}
	}
}

// TestSuiteSelects checks that the tests exist that test/vm/suite selects by name. A regular
// expression without a match would pass.
func TestSuiteSelects(t *testing.T) {
	text, err := os.ReadFile("../vm/suite")
	if err != nil {
		t.Fatal(err)
	}

	selected := func(variable string) []string {
		_, rest, _ := strings.Cut(string(text), "\n"+variable+"='")

		names, _, found := strings.Cut(rest, "'\n")
		if !found {
			t.Fatalf("test/vm/suite has no %s", variable)
		}

		return strings.Split(names, "|")
	}
	if got := selected("kinds"); !slices.Equal(got, kindPaths()) {
		t.Errorf("kinds are %q, want %q", got, kindPaths())
	}

	for _, name := range kindPaths() {
		if !slices.ContainsFunc((&Cluster{}).everyPath(), func(p *Path) bool { return p.Name == name }) {
			t.Errorf("there is no path %q", name)
		}
	}

	for _, name := range selected("datapath") {
		if !slices.ContainsFunc(fieldTests, func(f fieldTest) bool { return f.name == name }) {
			t.Errorf("there is no field test %q", name)
		}
	}

	for line, file := range map[string]string{
		"some=": "e2e_test.go", "agents=": "e2e_test.go", `[ -z "$full" ] || bridged=`: "e2e_test.go", "\t\tlab direct ebpf \"${full": "e2e_test.go",
		"\tgateways) ": "gateways_test.go",
	} {
		_, rest, _ := strings.Cut(string(text), "\n"+line)
		rest, _, _ = strings.Cut(rest, "\n")
		parts := runNames(t, file)

		named := regexp.MustCompile(`\^\(?([a-z][a-z., |]+)\)?\\?\$`).FindAllStringSubmatch(rest, -1)
		if len(named) == 0 {
			t.Errorf("test/vm/suite has no line %q that names parts", line)
		}

		for _, m := range named {
			for name := range strings.SplitSeq(m[1], "|") {
				if !slices.ContainsFunc(parts, regexp.MustCompile("^"+name+"$").MatchString) {
					t.Errorf("%s has no part %q", file, name)
				}
			}
		}
	}

	if _, rest, _ := strings.Cut(string(text), `[ -z "$full" ] || bridged=`); !strings.Contains(strings.SplitN(rest, "\n", 2)[0], "$agents") {
		t.Error("test/vm/suite -a bridged does not select agents")
	}

	if !strings.Contains(string(text), podsEnv+"=") {
		t.Errorf("test/vm/suite does not set %s", podsEnv)
	}

	var programs []byte

	files, err := filepath.Glob("../../bpf/*_test.go")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		programs = append(programs, text...)
	}

	for _, name := range selected("slow") {
		if !strings.Contains(string(programs), "func "+name+"(t *testing.T)") {
			t.Errorf("bpf has no test %q", name)
		}
	}
}

// The tests that test/vm/suite selects by the beginning of -test.run exist, in whatever package.
func TestSuiteNamesTests(t *testing.T) {
	text, err := os.ReadFile("../vm/suite")
	if err != nil {
		t.Fatal(err)
	}

	runs := regexp.MustCompile(`in_vm \S+ (\S+) -test\.run ['"]?\^?\(?([A-Za-z_|]+)`).FindAllStringSubmatch(string(text), -1)
	if len(runs) < 10 {
		t.Errorf("%d commands of test/vm/suite name tests: %q", len(runs), runs)
	}

	for _, run := range runs {
		var code []byte

		files, err := filepath.Glob("../../" + run[1] + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}

		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			code = append(code, text...)
		}

		for name := range strings.SplitSeq(run[2], "|") {
			if !regexp.MustCompile(`(?m)^func (Test\w*)?` + name + `\w*\(t `).Match(code) {
				t.Errorf("%s has no test %q", run[1], name)
			}
		}
	}
}

// runNames returns the names of the tests that the file starts with t.Run.
func runNames(t *testing.T, file string) (names []string) {
	t.Helper()

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range regexp.MustCompile(`t\.Run\("([^"]+)"`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}

	return names
}

// RUN='a|b' runs both. Each alternative of -test.run starts at the top level, so each needs the
// prefix.
func TestSuiteRuns(t *testing.T) {
	const script = `eval "$(sed -n '/^lab()/,/^}/p;/^below()/,/^}/p' ../vm/suite)"; in_vm() { echo "${@: -1}"; }; lab direct ebpf .`

	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)

	cmd.Env = append(os.Environ(), "RUN=field/GRE|outsider")

	out, err := cmd.CombinedOutput()
	if want := "^TestEndToEnd$/field/GRE|^TestEndToEnd$/outsider\n"; err != nil || string(out) != want {
		t.Errorf("-test.run %s(%v), want %s", out, err, want)
	}
}
