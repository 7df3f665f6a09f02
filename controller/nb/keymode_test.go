package nb_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
)

// dialEnv makes the test binary a client with this endpoint, key, certificate and CA.
const dialEnv = "OVN_EBPF_NB_DIAL"

// TestSSLKeyMode checks an unprivileged client that loses read permission for its key. An existing
// connection continues. The next one fails with an error that names the cause, and succeeds when
// the permission is restored.
func TestSSLKeyMode(t *testing.T) {
	if os.Getenv(dialEnv) != "" {
		printReady(t)
		return
	}

	if os.Getuid() != 0 {
		t.Fatal("not root: cannot start a client as another user")
	}

	const noMatch = 65534

	dir := t.TempDir()
	ours := newAuthority(t, dir, "ours")
	client := ours.sign(t, "client")
	program := filepath.Join(dir, "client")

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(os.WriteFile(program, read(t, self), 0o755), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755),
		os.Chown(client.Key, noMatch, noMatch), os.Chmod(client.Certificate, 0o644), os.Chmod(ours.file, 0o644)); err != nil {
		t.Fatal(err)
	}

	s := newSSLServer(t, dir)
	server := ours.sign(t, "server")
	s.start(t, server, ours.file)

	cmd := exec.Command(program, "-test.run=^TestSSLKeyMode$", "-test.timeout=5m")
	// The other user may not be able to read the suppressions that GORACE names.
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "GORACE=", dialEnv+"="+strings.Join([]string{s.endpoints()[0], client.Key, client.Certificate, ours.file}, " "))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: noMatch, Gid: noMatch}}

	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	cmd.Stderr = t.Output()

	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		in.Close()

		_ = cmd.Wait() // its output was read
	})

	output := bufio.NewScanner(out)
	await := func(when string, want ...string) {
		t.Helper()

		for output.Scan() {
			t.Log(output.Text())

			missing := false
			for _, w := range want {
				missing = missing || !strings.Contains(output.Text(), w)
			}

			if !missing {
				return
			}
		}

		t.Fatalf("%s: client ended (%v) before it printed %q", when, output.Err(), want)
	}
	await("initially", "ready")

	if err := os.Chmod(client.Key, 0); err != nil {
		t.Fatal(err)
	}

	s.start(t, server, ours.file)
	await("without permission", client.Key+": permission denied", "mode 0000 of user 65534", "this is user 65534")

	if err := os.Chmod(client.Key, 0o600); err != nil {
		t.Fatal(err)
	}

	await("with permission again", "ready")
}

// printReady prints "ready", or the reason why not, whenever it changes, until stdin ends.
func printReady(t *testing.T) {
	f := strings.Fields(os.Getenv(dialEnv))
	db := dial(t, f[:1], nb.TLS{Key: f[1], Certificate: f[2], CA: f[3]})
	ended := make(chan struct{})

	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // any error ends it, too

		close(ended)
	}()

	printed := ""

	for {
		text := "ready"
		if err := db.Ready(); err != nil {
			text = strings.ReplaceAll(err.Error(), "\n", "; ")
		}

		if text != printed {
			fmt.Println(text)
			printed = text
		}

		select {
		case <-ended:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
