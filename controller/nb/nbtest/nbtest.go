// Package nbtest runs a real ovsdb-server of the platform (docs/platforms.md) with an empty
// Northbound database for tests.
//
// Start runs the server alone, StartRaft a cluster of three. StartOVN adds a Southbound database
// and ovn-northd, and OVN.StartController a node with ovs-vswitchd and ovn-controller. Their
// methods fail the test if a command fails.
package nbtest

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// Server is an ovsdb-server with one database, mostly a Northbound one.
type Server struct {
	Endpoint string // unix:<path>

	t      testing.TB
	dir    string    // of the database file and all sockets
	cmd    *exec.Cmd // nil while the server does not run
	stderr bytes.Buffer
}

// Start runs a server until the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t, Schema(t, "ovn-nb.ovsschema"))
}

// StartWith runs a server with a modified schema, for example an older or newer one. change
// modifies the tables of the OVN that runs, which are those of the schema's JSON.
func StartWith(t testing.TB, change func(tables map[string]any)) *Server {
	t.Helper()
	return start(t, changed(t, change))
}

// start runs a server with an empty database of the schema until the end of the test.
func start(t testing.TB, schemaFile string) *Server {
	t.Helper()
	// A socket path has room for 107 bytes; t.TempDir is often longer.
	dir, err := os.MkdirTemp("", "nbtest")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })

	s := &Server{Endpoint: "unix:" + filepath.Join(dir, "db.sock"), t: t, dir: dir}

	out, err := exec.Command("ovsdb-tool", "create", s.path("db"), schemaFile).CombinedOutput()
	if err != nil {
		t.Fatalf("create database: %v: %s", err, out)
	}

	s.Run()
	t.Cleanup(s.Kill)

	return s
}

// Schema returns the path of a schema of the OVN that runs, such as "ovn-nb.ovsschema".
func Schema(t testing.TB, name string) string {
	t.Helper()
	tether.Check(t) // every server of this package needs a schema

	if err := platform.Default(t.Output()); err != nil {
		t.Fatal(err)
	}

	return platform.OVNFile(name)
}

// changed writes a modified Northbound schema, and returns the path of the file.
func changed(t testing.TB, change func(tables map[string]any)) string {
	text, err := os.ReadFile(Schema(t, "ovn-nb.ovsschema"))
	if err != nil {
		t.Fatal(err)
	}

	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}

	tables, _ := all["tables"].(map[string]any)
	change(tables)
	delete(all, "cksum")

	if text, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "changed.ovsschema")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}

	return file
}

// Convert stops the server, converts its database to the schema of the OVN that runs, as an upgrade
// of OVN does, and starts it again.
func (s *Server) Convert() {
	s.t.Helper()
	s.Kill()

	schema := Schema(s.t, "ovn-nb.ovsschema")
	if out, err := exec.Command("ovsdb-tool", "convert", s.path("db"), schema).CombinedOutput(); err != nil {
		s.t.Fatalf("convert database: %v: %s", err, out)
	}

	s.Run()
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// Run starts the server on its database and returns once it listens.
func (s *Server) Run() {
	s.t.Helper()
	os.Remove(s.path("db.sock"))
	s.stderr.Reset()
	s.cmd = exec.Command("ovsdb-server", "--no-chdir", "--unixctl="+s.path("ctl"),
		"--remote=p"+s.Endpoint, "-vconsole:warn", "-vsyslog:off", s.path("db"))

	s.cmd.Stderr = &s.stderr
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start ovsdb-server: %v", err)
	}

	Eventually(s.t, "ovsdb-server listens", func() bool {
		conn, err := net.Dial("unix", s.path("db.sock"))
		if err == nil {
			conn.Close()
		}

		return err == nil
	})
}

// Kill ends the server like a crash. It may be started again.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}

	_ = s.cmd.Process.Kill() // fails if it has exited already
	_ = s.cmd.Wait()         // fails because it was killed
	s.cmd = nil

	if s.stderr.Len() > 0 {
		s.t.Logf("ovsdb-server: %s", s.stderr.String())
	}
}

// Backup copies the current database file for Restore. The server should not run.
func (s *Server) Backup() { s.copy("db", "backup") }

// Restore restores the file of Backup. The server must not run.
func (s *Server) Restore() { s.copy("backup", "db") }

// Empty replaces the database by an empty one. The server must not run.
func (s *Server) Empty() {
	s.t.Helper()

	if err := os.Remove(s.path("db")); err != nil {
		s.t.Fatal(err)
	}

	schema := Schema(s.t, "ovn-nb.ovsschema")
	if out, err := exec.Command("ovsdb-tool", "create", s.path("db"), schema).CombinedOutput(); err != nil {
		s.t.Fatalf("create database: %v: %s", err, out)
	}
}

func (s *Server) copy(from, to string) {
	s.t.Helper()

	text, err := os.ReadFile(s.path(from))
	if err == nil {
		err = os.WriteFile(s.path(to), text, 0o600)
	}

	if err != nil {
		s.t.Fatal(err)
	}
}

// Nbctl runs ovn-nbctl and returns its output without the last newline.
func (s *Server) Nbctl(args ...string) string {
	s.t.Helper()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	var stderr bytes.Buffer

	all := append([]string{"--db=" + s.Endpoint, "--no-leader-only"}, args...)
	cmd := exec.CommandContext(ctx, "ovn-nbctl", all...)
	cmd.Stderr = &stderr

	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("ovn-nbctl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}

	return strings.TrimSuffix(string(out), "\n")
}

// VIPs returns the VIPs of each load balancer, as VIP=backends, by the load balancer's name.
func (s *Server) VIPs() map[string][]string {
	out := map[string][]string{}

	rows := s.Nbctl("--bare", "--format=csv", "--no-headings", "--columns=name,vips", "list", "load_balancer")
	for line := range strings.SplitSeq(rows, "\n") {
		if name, vips, _ := strings.Cut(line, ","); name != "" {
			out[name] = strings.Fields(strings.Trim(vips, `"`))
		}
	}

	return out
}

// Dump returns the database's contents without UUIDs, which change from run to run.
func (s *Server) Dump() string {
	s.t.Helper()

	out, err := exec.Command("ovsdb-client", "dump", s.Endpoint, "OVN_Northbound").Output()
	if err != nil {
		s.t.Fatalf("dump database: %v", err)
	}

	return string(out)
}

// Eventually waits until the condition holds. It fails the test after a minute, which is enough
// even for an overloaded machine.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()

	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting for: %s", what)
		}

		time.Sleep(10 * time.Millisecond)
	}
}
