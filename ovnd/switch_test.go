package ovnd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newSwitch(t *testing.T) Switch {
	dir := t.TempDir()
	return Switch{Dir: dir + "/data", RunDir: dir + "/run", OVNRunDir: dir + "/ovn"}
}

// serve runs the server of the database until the test ends.
func serve(t *testing.T, argv []string) {
	t.Helper()

	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func mustRun(t *testing.T, argv ...string) string {
	t.Helper()

	out, err := run(t.Context(), argv...)
	if err != nil {
		t.Fatal(err)
	}

	return strings.TrimSpace(string(out))
}

// TestSwitchOfTheNodeStays: a database that ovnd did not create is refused by every command, and
// nothing of it changes.
func TestSwitchOfTheNodeStays(t *testing.T) {
	s := newSwitch(t)
	for _, dir := range []string{s.Dir, s.RunDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	mustRun(t, "ovsdb-tool", "create", s.file(), schemaPath(vswitchSchema))

	before, err := os.ReadFile(s.file())
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Database(t.Context()); !errors.Is(err, errForeign) {
		t.Errorf("a foreign file is served: %v", err)
	}

	if after, err := os.ReadFile(s.file()); err != nil || string(after) != string(before) {
		t.Errorf("the foreign file changed: %v", err)
	}

	serve(t, []string{"ovsdb-server", "--remote=p" + s.remote(), "--pidfile=" + s.RunDir + "/pid", "--unixctl=" + s.RunDir + "/ctl", s.file()})
	vsctl := []string{"ovs-vsctl", "--timeout=5", "--db=" + s.remote(), "--no-wait"}

	if err := await(t.Context(), func() error { _, err := run(t.Context(), append(vsctl, "add-br", "br0")...); return err }); err != nil {
		t.Fatal(err)
	}

	beside := s

	beside.Dir = t.TempDir() // as the chart's, where the node's own database is elsewhere
	if _, err := beside.Database(t.Context()); err == nil || !strings.Contains(err.Error(), "ovs.host=true") {
		t.Errorf("a second server takes the socket: %v", err)
	}

	if left, err := os.ReadDir(beside.Dir); err != nil || len(left) != 0 {
		t.Errorf("made %v: %v", left, err)
	}

	for name, err := range map[string]error{
		"Daemon": second(s.Daemon(t.Context())), "Controller": second(s.Controller(t.Context(), silent)), "Await": s.Await(t.Context()),
		"Remove": s.Remove(t.Context(), s.Dir), "Remove of another directory": besideRemoved(t, beside),
	} {
		if !errors.Is(err, errForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}

	if got := mustRun(t, append(vsctl, "list-br")...); got != "br0" {
		t.Errorf("bridges %q", got)
	}
}

func second(_ []string, err error) error { return err }

// besideRemoved returns the error of a removal with a marked file while the node's own server has
// the socket.
func besideRemoved(t *testing.T, s Switch) error {
	t.Helper()

	if err := s.create(t.Context()); err != nil {
		t.Fatal(err)
	}

	return s.Remove(t.Context(), s.Dir)
}

// TestSwitchOfOurs: the database that ovnd creates is served again after a restart, and is removed
// with its bridges, once its server answers.
func TestSwitchOfOurs(t *testing.T) {
	s := newSwitch(t)
	if err := s.Remove(t.Context(), s.Dir); err != nil {
		t.Errorf("remove nothing: %v", err)
	}

	if _, err := s.Database(t.Context()); err != nil {
		t.Fatal(err)
	}

	argv, err := s.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if err := s.Remove(short, s.Dir); err == nil {
		t.Error("removed without a server")
	}

	if _, err := os.Stat(s.file()); err != nil {
		t.Error(err)
	}

	serve(t, argv)

	if err := await(t.Context(), func() error { return s.checkServer(t.Context()) }); err != nil {
		t.Fatal(err)
	}

	mustRun(t, "ovs-vsctl", "--timeout=5", "--db="+s.remote(), "--no-wait", "set", "Open_vSwitch", ".", "ovs_version=1")

	if err := s.Await(t.Context()); err != nil {
		t.Error(err)
	}

	if err := s.Remove(t.Context(), s.Dir); err != nil {
		t.Error(err)
	}

	if left, err := os.ReadDir(s.Dir); err != nil || len(left) != 0 {
		t.Errorf("left %v: %v", left, err)
	}
}

// TestSchemaIsNotConvertedBack: a database with a newer schema than the installed one stays as it
// is, an older one is converted.
func TestSchemaIsNotConvertedBack(t *testing.T) {
	installed := mustRun(t, "ovsdb-tool", "schema-version", schemaPath(vswitchSchema))
	for version, want := range map[string]string{"1.0.0": installed, "99.0.0": "99.0.0"} {
		s := newSwitch(t)

		text, err := os.ReadFile(schemaPath(vswitchSchema))
		if err != nil {
			t.Fatal(err)
		}

		schema := filepath.Join(t.TempDir(), "schema")

		changed := strings.Replace(string(text), `"`+installed+`"`, `"`+version+`"`, 1)
		if changed == string(text) {
			t.Fatal("the schema has no version")
		}
		// The checksum is of the installed text.
		lines := strings.Split(changed, "\n")
		for i, line := range lines {
			if strings.Contains(line, `"cksum"`) {
				lines[i] = ""
			}
		}

		if err := os.WriteFile(schema, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}

		if err := os.MkdirAll(s.Dir, 0o755); err != nil {
			t.Fatal(err)
		}

		mustRun(t, "ovsdb-tool", "create", s.file(), schema)
		mustRun(t, "ovsdb-tool", "transact", s.file(), insertRow)

		if _, err := s.Database(t.Context()); err != nil {
			t.Fatal(err)
		}

		if got := mustRun(t, "ovsdb-tool", "db-version", s.file()); got != want {
			t.Errorf("schema %s became %s, want %s", version, got, want)
		}
	}
}

// TestControllerOnTheNodesOwnSwitch: with Host, ovn-controller starts on an Open vSwitch without
// the mark. It waits for its certificate, and does not start beside another ovn-controller.
func TestControllerOnTheNodesOwnSwitch(t *testing.T) {
	s := newSwitch(t)
	for _, dir := range []string{s.Dir, s.RunDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	mustRun(t, "ovsdb-tool", "create", s.file(), schemaPath(vswitchSchema))
	serve(t, []string{"ovsdb-server", "--remote=p" + s.remote(), "--pidfile=" + s.RunDir + "/pid", "--unixctl=" + s.RunDir + "/ctl", s.file()})
	vsctl := []string{"ovs-vsctl", "--timeout=5", "--db=" + s.remote(), "--no-wait", "init", "--", "set", "Open_vSwitch", ".", "ovs_version=1"}

	if err := await(t.Context(), func() error { _, err := run(t.Context(), vsctl...); return err }); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Controller(t.Context(), silent); !errors.Is(err, errForeign) {
		t.Errorf("without Host: %v", err)
	}

	s.Host, s.AwaitCertificate = true, true
	s.TLS = TLS{Key: s.RunDir + "/node.pem", Cert: s.RunDir + "/node.pem", CA: s.RunDir + "/ca.pem"}

	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if argv, err := s.Controller(short, silent); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a certificate: %v, %v", argv, err)
	}

	for _, file := range []string{s.TLS.Cert, s.TLS.CA} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	argv, err := s.Controller(t.Context(), silent)
	if err != nil || argv[0] != "ovn-controller" {
		t.Errorf("%v, %v", argv, err)
	}

	serve(t, append(argv, "--unixctl="+s.OVNRunDir+"/ovn-controller.1.ctl"))

	err = await(t.Context(), func() error {
		if err := os.WriteFile(s.OVNRunDir+"/ovn-controller.pid", []byte("1\n"), 0o644); err != nil { // as in a container
			return err
		}

		if s.checkControllerEnded() == nil {
			return errors.New("it does not listen yet")
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Controller(t.Context(), silent); err == nil || !strings.Contains(err.Error(), "ovn-controller still runs") {
		t.Errorf("beside another one: %v", err)
	}
}
