package page

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// browse opens a page in a headless Chromium and returns its DOM after some seconds of the page's
// own clock.
func browse(t *testing.T, args ...string) string {
	t.Helper()

	path, err := exec.LookPath("chromium")
	if err != nil && os.Getenv("OVN_EBPF_SCREENSHOT") != "" {
		t.Fatal("look for chromium:", err)
	}

	if err != nil {
		t.Skip("no chromium, which is 290 MB: make page installs it:", err)
	}

	cmd := exec.Command(path, append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(),
		"--virtual-time-budget=7000", "--force-color-profile=srgb",
	}, args...)...)

	var log strings.Builder

	cmd.Stderr = &log

	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, log.String())
	}

	return string(out)
}

func contains(t *testing.T, dom string, want ...string) {
	t.Helper()

	for _, w := range want {
		if !strings.Contains(dom, w) {
			body, _, _ := strings.Cut(dom, "<script")
			t.Errorf("no %s in\n%s", w, body)
		}
	}
}

// The browser shows the agent's counters as rates. OVN_EBPF_SCREENSHOT saves a screenshot.
func TestChromium(t *testing.T) {
	f := newFixture(t, open)
	f.begin()
	dom := browse(t, "--dump-dom", f.URL+"/")
	contains(t, dom,
		`<h1 id="node">node1</h1>`, `layout direct, backend ebpf, datapath system`, `class="good">Ready: everything is in its desired state<`,
		`id="uplink-host" x="272" y="106">6.5k packets/s<`, `id="uplink-ovn" x="627" y="106">1.9k packets/s<`,
		`id="ovn-uplink" x="627" y="176">1.6k packets/s<`, `id="ovn-host" x="450" y="22">20 packets/s<`, `id="host-uplink" x="272" y="176">2.5k/s, derived<`, `id="host-ovn" x="450" y="262">not counted here<`,
		`<tr><td>derived</td><td>host</td><td>out</td><td class="n">2.5k</td>`,
		`>dropped: 3.5 packets/s<`, `<tr><td>geneve</td><td>wire</td><td>host</td><td class="n">4.5k</td><td class="n">2.7 MB</td>`,
		`<td>svc_leak</td><td>OVN</td><td>drop</td>`, `agent's start: flows 2.`)
	f.change(func() {
		f.missing, f.stats.Degraded["bind_gate"] = []string{"gateway: no <b>bridge</b>"}, "no cgroup2"
	})
	contains(t, browse(t, "--dump-dom", f.URL+"/"), `class="bad">Not ready<`, `<li>gateway: no &lt;b&gt;bridge&lt;/b&gt;</li>`, `<li>optional: bind_gate: no cgroup2</li>`)

	if path := os.Getenv("OVN_EBPF_SCREENSHOT"); path != "" {
		f.change(func() { f.missing, f.stats.Degraded = nil, nil })
		browse(t, "--screenshot="+path, "--window-size=1100,900", f.URL+"/")

		if info, err := os.Stat(path); err != nil || info.Size() < 10000 {
			t.Errorf("screenshot: %v, error %v", info, err)
		}
	}
}
