package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// config check warns about each private key with too open permissions, with the line that names it,
// and about no other file.
func TestConfigCheckWarnsOfOpenKeys(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	file := in("f.conf")
	kubeconfig := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443'}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {client-certificate: cert, client-key: api-key}}]\n"
	text := "[kubernetes]\nkubeconfig=" + in("kubeconfig") + "\n[ovnnorth]\naddress=ssl:192.0.2.1:6641\nclient-privkey=" + in("nb-key") +
		"\n[ovnsouth]\naddress=tcp:192.0.2.1:6642\nclient-privkey=" + in("sb-key") + "\n"

	var errs []error
	for name, content := range map[string]string{"f.conf": text, "kubeconfig": kubeconfig, "nb-key": "", "sb-key": "", "api-key": "", "cert": ""} {
		errs = append(errs, os.WriteFile(in(name), []byte(content), 0o600))
	}

	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}

	warnings := func() []string {
		var stdout, stderr bytes.Buffer

		_ = run(context.Background(), []string{"config", "check", file}, &stdout, &stderr) // the keys are invalid, so the check fails

		var out []string

		for line := range strings.Lines(stdout.String()) {
			if strings.HasPrefix(line, "warning:") {
				out = append(out, line)
			}
		}

		return out
	}
	if got := warnings(); len(got) != 0 {
		t.Errorf("mode 0600: %q", got)
	}

	for _, name := range []string{"nb-key", "sb-key", "api-key"} {
		if err := os.Chmod(in(name), 0o640); err != nil {
			t.Fatal(err)
		}
	}

	got := warnings()
	if len(got) != 2 || !strings.Contains(got[0], file+":2: kubeconfig: private key "+in("api-key")+" has mode 0640") ||
		!strings.Contains(got[1], file+":5: nb-client-privkey: private key "+in("nb-key")+" has mode 0640") {
		t.Errorf("warnings %q", got)
	}
}
