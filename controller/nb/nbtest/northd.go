package nbtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// OVN is a Northbound database with northd and a Southbound database. Server is the Northbound one.
type OVN struct {
	*Server
	southbound *Server
	log        string // northd's log file
	chassis    int    // number of chassis added
}

// StartOVN runs northd and the databases until the end of the test.
func StartOVN(t testing.TB) *OVN {
	t.Helper()

	o := &OVN{Server: Start(t), southbound: start(t, Schema(t, "ovn-sb.ovsschema"))}
	o.log = o.path("northd.log")

	cmd := exec.Command("ovn-northd", "--ovnnb-db="+o.Endpoint, "--ovnsb-db="+o.southbound.Endpoint,
		"--unixctl="+o.path("northd.ctl"), "--log-file="+o.log,
		"-vconsole:off", "-vsyslog:off", "-vfile:warn")

	cmd.Env = append(os.Environ(), "OVN_RUNDIR="+o.dir)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start ovn-northd: %v", err)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has exited already
		_ = cmd.Wait()         // fails because it was killed
	})

	return o
}

// Sync waits until northd has processed the Northbound database.
func (o *OVN) Sync() { o.Nbctl("--wait=sb", "--timeout=60", "sync") }

// AddChassis registers a node, as its ovn-controller would.
func (o *OVN) AddChassis(name string) {
	o.t.Helper()
	o.chassis++
	o.sbctl("chassis-add", name, "geneve", fmt.Sprintf("192.0.2.%d", o.chassis))
}

// Flows returns all logical flows, as "ovn-sbctl lflow-list" prints them.
func (o *OVN) Flows() string {
	o.t.Helper()
	return o.sbctl("lflow-list")
}

// PortOptions returns the options of a port in the Southbound database, or "" if the port does not
// exist.
func (o *OVN) PortOptions(port string) string {
	o.t.Helper()
	return o.sbctl("--bare", "--columns=options", "find", "Port_Binding", "logical_port="+port)
}

// AddressSet returns the name and the addresses of a set in the Southbound database, on a line
// each. It returns "" if the set does not exist.
func (o *OVN) AddressSet(name string) string {
	o.t.Helper()
	return o.sbctl("--bare", "--columns=name,addresses", "find", "Address_Set", "name="+name)
}

// sbctl runs ovn-sbctl and returns its output.
func (o *OVN) sbctl(args ...string) string {
	o.t.Helper()

	var stderr bytes.Buffer

	all := append([]string{"--db=" + o.southbound.Endpoint, "--no-leader-only"}, args...)
	cmd := exec.Command("ovn-sbctl", all...)
	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err != nil {
		o.t.Fatalf("ovn-sbctl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}

	return string(out)
}

// Warnings returns northd's warnings.
func (o *OVN) Warnings() []string {
	o.t.Helper()

	text, err := os.ReadFile(filepath.Clean(o.log))
	if err != nil {
		o.t.Fatal(err)
	}

	var out []string

	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "|WARN|") || strings.Contains(line, "|ERR|") {
			out = append(out, strings.TrimSpace(line))
		}
	}

	return out
}

// Southbound returns the Southbound database's endpoint.
func (o *OVN) Southbound() string { return o.southbound.Endpoint }

// Chassis returns the names of all chassis, one per line.
func (o *OVN) Chassis() string {
	o.t.Helper()
	return o.sbctl("--bare", "--columns=name", "list", "Chassis")
}

// NormalSouthbound returns the Southbound database in the format of Normal.
func (o *OVN) NormalSouthbound() []string {
	o.t.Helper()
	return o.southbound.normal("OVN_Southbound")
}

// ClearStats resets the count of Recomputes.
func (o *OVN) ClearStats() {
	o.t.Helper()
	o.appctl("inc-engine/clear-stats")
}

// Recomputes returns how often northd computed its logical model since ClearStats, completely or in
// part.
func (o *OVN) Recomputes() int { return o.engineCount("northd", "recompute", "compute") }

// FullFlowComputations returns how often northd computed all logical flows since ClearStats.
func (o *OVN) FullFlowComputations() int { return o.engineCount("lflow", "recompute") }

// engineCount returns the sum of counters of a node of northd's incremental engine. northd lists them
// like this:
//
//	Node: northd
//	- recompute:            2
//	- compute:              0
//	- cancel:               0
func (o *OVN) engineCount(engineNode string, counters ...string) int {
	o.t.Helper()

	node, sum := "", 0

	for line := range strings.Lines(o.appctl("inc-engine/show-stats")) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "Node: "); ok {
			node = name
			continue
		}

		f := strings.Fields(line)
		if node != engineNode || len(f) < 3 || !slices.Contains(counters, strings.TrimSuffix(f[1], ":")) {
			continue
		}

		n, err := strconv.Atoi(f[2])
		if err != nil {
			o.t.Fatalf("read northd's statistics: %v", err)
		}

		sum += n
	}

	return sum
}

// appctl sends a command to northd and returns its answer.
func (o *OVN) appctl(command string) string {
	o.t.Helper()

	out, err := exec.Command("ovn-appctl", "-t", o.path("northd.ctl"), command).CombinedOutput()
	if err != nil {
		o.t.Fatalf("northd %s: %v: %s", command, err, out)
	}

	return string(out)
}
