package leftover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/test/cgroup"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
	"github.com/ovn-ebpf/ovn-ebpf/test/scratch"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

// ownerEnv makes the test binary the owner of something: "lab DIR NAME", "owned lab DIR NAME" or
// "scratch DIR".
const ownerEnv = "LEFTOVER_TEST_OWNER"

func TestMain(m *testing.M) {
	if what := os.Getenv(ownerEnv); what != "" {
		os.Exit(tether.Run(func() int { return own(strings.Fields(what)) }))
	}

	os.Exit(testnode.Main(m))
}

// own makes it, reports its path, and waits for the end of the input.
func own(what []string) int {
	var err error

	path := what[len(what)-1]
	switch what[0] {
	case "scratch":
		var dir *scratch.Dir
		if dir, err = scratch.MakeIn(path, "test"); err == nil {
			path = dir.Path
		}
	default:
		_, err = lab.Up(context.Background(), lab.Options{Owned: what[0] == "owned", Dir: what[2], Name: what[1], CacheDir: os.Getenv("OVN_EBPF_CACHE")})
	}

	if err != nil {
		fmt.Println(err)
		return 1
	}

	fmt.Println("ready", path)

	_, _ = os.Stdin.Read(make([]byte, 1))

	return 0
}

// owner starts an owner and returns its path. kill kills it; the test's end does so, too.
func owner(t *testing.T, what string, env ...string) (path string, kill func()) {
	t.Helper()

	cmd := exec.Command("/proc/self/exe") // ground hides its other name

	cmd.Env = append(append(os.Environ(), ownerEnv+"="+what), env...)

	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	kill = func() {
		_ = cmd.Process.Kill() // fails if it has ended
		_ = cmd.Wait()

		stdin.Close()
	}
	t.Cleanup(kill)

	if _, err := fmt.Fscanln(out, new(string), &path); err != nil {
		t.Fatalf("%s did not start: %v", what, err)
	}

	return path, kill
}

// ground replaces the directories that the machine's tests share by empty ones.
func ground(t *testing.T) {
	t.Helper()

	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()

		if err := unix.Mount(source, target, kind, flags, ""); err != nil {
			t.Fatalf("mount %s: %v", target, err)
		}

		t.Cleanup(func() {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	mount("tmpfs", "/tmp", "tmpfs", 0)
	mount("tmpfs", "/var/tmp", "tmpfs", 0)

	all := filepath.Join(t.TempDir(), "cgroup")
	must(t, os.Mkdir(all, 0o755))
	mount("cgroup2", all, "cgroup2", 0)
	dir, err := scratch.MakeIn(all, "ground")
	must(t, err)
	t.Cleanup(func() { must(t, cgroup.Remove(dir.Path)) })
	mount(dir.Path, "/sys/fs/cgroup", "", unix.MS_BIND)
}

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

func sweep(t *testing.T, list bool) string {
	t.Helper()

	var out bytes.Buffer
	if err := Sweep(Options{List: list, Out: &out}); err != nil {
		t.Errorf("sweep: %v", err)
	}

	t.Log(out.String())

	return out.String()
}

func exists(t *testing.T, path string) bool {
	t.Helper()

	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}

	return err == nil
}

// TestSweep plants leftovers of every kind and parts that must stay.
func TestSweep(t *testing.T) {
	ground(t)

	var gone, stay, removed, kept []string // paths, and lines of the output

	stale := func(line, path string) {
		removed = append(removed, line)
		if path != "" {
			gone = append(gone, path)
		}
	}
	used := func(what, user, path string) {
		kept = append(kept, fmt.Sprintf("%s stays: %s uses it", what, user))
		stay = append(stay, path)
	}
	dir := func(path string) string {
		must(t, os.MkdirAll(path, 0o755))
		return path
	}

	t.Cleanup(func() {
		l, err := lab.Open("/run/ovn-ebpf-lab")
		must(t, err)
		must(t, l.Down(context.Background()))

		names, err := netns.List("")
		must(t, err)

		for _, name := range names {
			must(t, netns.Delete(name))
		}

		for _, dir := range []string{"/run/ovn-ebpf", "/run/ovn-ebpf-mine", "/run/other-e2e"} {
			must(t, os.RemoveAll(dir))
		}
	})

	// A lab whose owner was killed, with daemons and an eBPF pin.
	path, kill := owner(t, "owned e2e /run/ovn-ebpf-e2e")
	dir(path + "/bpf/node1/pin")
	kill()

	processes := processesOf(t, path)
	if len(processes) < 5 {
		t.Errorf("only the processes %v survive the owner", processes)
	}

	for _, line := range []string{"lab e2e in " + path, "netns e2e-n1", "netns e2e-fab", "netns e2e-ext", "mount " + path + "/bpf", "mount " + path + "/cgroup", "directory " + path} {
		stale(line, "")
	}

	gone = append(gone, path, netns.Path("e2e-n1"))
	// A lab whose record is gone.
	path, kill = owner(t, "lab lt7 /run/lt7")
	kill()
	must(t, os.Remove(path+"/lab.json"))

	orphans := processesOf(t, path)
	if len(orphans) < 5 {
		t.Errorf("only the processes %v are orphaned", orphans)
	}

	processes = append(processes, orphans...)

	for _, name := range []string{"lt7-n1", "lt7-fab", "lt7-ext"} {
		stale("netns "+name, netns.Path(name))
	}

	stale("directory "+path, path)
	// A lab in use that its command has left, as `ovnlab up` does.
	path, kill = owner(t, "lab ovnlab /run/ovn-ebpf-lab")
	kill()

	daemonsInUse := processesOf(t, path)
	stay = append(stay, path+"/lab.json", netns.Path("ovnlab-n1"))
	// A lab whose owner runs in another PID namespace.
	cluster, killCluster := owner(t, "owned kubelets "+kubelets, "OVN_EBPF_TETHER=")
	stay = append(stay, cluster+"/lab.json")
	// Namespaces.
	for name, line := range map[string]string{
		"campaigndirect-far": "", "scale-4194304": "", "lt9-vm1": "", "ovnlab.cloud-plain": "",
		"other": "stay", "campaign-web": "stay", "web-n1": "stay", "web-vm1": "stay", "web-plain": "stay",
	} {
		must(t, netns.Create(name))

		if line == "" {
			stale("netns "+name, netns.Path(name))
		} else {
			stay = append(stay, netns.Path(name))
		}
	}

	must(t, netns.Create("demo-n1"))

	inside, err := process.Start(process.Spec{Argv: []string{"sleep", "1h"}, Netns: "demo-n1", Tethered: true})
	must(t, err)
	t.Cleanup(func() { must(t, inside.Stop(0)) })
	testnode.Eventually(t, "process in namespace", func() error {
		if user, err := lab.UserOfNetns("demo-n1"); user == "" || !strings.Contains(user, "sleep") {
			return fmt.Errorf("user %q, %w", user, err)
		}

		return nil
	})
	used("netns demo-n1", fmt.Sprintf("process %d (sleep)", inside.PID), netns.Path("demo-n1"))
	own := fmt.Sprintf("scale-%d", os.Getpid())
	must(t, netns.Create(own))
	used("netns "+own, fmt.Sprintf("process %d", os.Getpid()), netns.Path(own))
	// Links: those of the caller's network are not ours.
	testnode.Run(t, "ip", "link", "add", "e2e-link", "type", "veth", "peer", "name", "e2e-peer")
	t.Cleanup(func() { testnode.Run(t, "ip", "link", "del", "e2e-link") })
	// Directories.
	stale("directory /run/ovn-ebpf-early", dir("/run/ovn-ebpf-early"))
	must(t, os.WriteFile("/run/ovn-ebpf-early/lab.json.77", nil, 0o600))
	must(t, os.WriteFile("/run/ovn-ebpf-early/vifs.json", nil, 0o600))
	must(t, unix.Mount("bpf", dir("/run/ovn-ebpf-early/bpf"), "bpf", 0, ""))

	for _, made := range []string{"bpf/pin", "kubelets/vm1", "vm1/net.d", "plain", "cloud/mysql"} {
		dir("/run/ovn-ebpf-early/" + made)
	}

	used("directory /run/ovn-ebpf-mine", "the owner of precious, which no lab makes,", dir("/run/ovn-ebpf-mine/precious"))
	stay = append(stay, dir("/run/ovn-ebpf/agent"), dir("/run/other-e2e"))
	// Scratch directories and cgroups.
	for _, root := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		path, kill := owner(t, "scratch "+root)
		dir(path + "/mounted")
		must(t, unix.Mount("tmpfs", path+"/mounted", "tmpfs", 0, ""))
		kill()
		stale("directory "+path, path)
		path, _ = owner(t, "scratch "+root)
		used("directory "+path, scratch.Owner(path), path)

		stay = append(stay, dir(filepath.Join(root, "ovn-ebpf-release-12")))

		t.Cleanup(func() {
			must(t, errors.Join(os.RemoveAll(path), os.RemoveAll(filepath.Join(root, "ovn-ebpf-release-12"))))
		})
	}

	path, kill = owner(t, "scratch /sys/fs/cgroup")
	kill()
	stale("cgroup "+path, path)

	stay = append(stay, dir("/sys/fs/cgroup/other"))
	nodes := []string{dir("/sys/fs/cgroup/kubelets-n1"), dir("/sys/fs/cgroup/kubelets-n2/kubepods")}

	before := sweep(t, true)
	if strings.Contains(before, "removed") {
		t.Error("-n says that it has removed something")
	}

	for _, path := range slices.Concat(gone, stay) {
		if !exists(t, path) {
			t.Fatalf("-n has removed %s", path)
		}
	}

	release, err := netns.Hold() // as a lab that starts
	must(t, err)

	out := sweep(t, false)
	if !strings.Contains(out, "netns campaigndirect-far stays: a lab that starts uses it\n") {
		t.Error("a namespace may be one of a lab that starts")
	}

	if !exists(t, netns.Path("campaigndirect-far")) {
		t.Error("removed a namespace while a lab starts")
	}

	release()

	out += sweep(t, false)

	for _, line := range removed {
		// Before the processes are ended, their namespaces are in use.
		if !strings.Contains(before, "would remove "+line+"\n") && !strings.HasPrefix(line, "netns lt7-") {
			t.Errorf("-n has no line for %s", line)
		}

		if n := strings.Count(out, "removed "+line+"\n"); n != 1 {
			t.Errorf("%d lines %q, want one", n, "removed "+line)
		}
	}

	for _, line := range kept {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("no line %q", line)
		}
	}

	for _, line := range []string{"lab ovnlab in /run/ovn-ebpf-lab stays: process ", "lab kubelets in " + kubelets + " stays: process "} {
		if !strings.Contains(out, line) {
			t.Errorf("no line begins with %q", line)
		}
	}

	for _, path := range gone {
		if exists(t, path) {
			t.Errorf("%s is left", path)
		}
	}

	for _, path := range slices.Concat(stay, nodes) {
		if !exists(t, path) {
			t.Errorf("%s is gone", path)
		}
	}

	for _, p := range processes {
		if p.Alive() {
			t.Errorf("process %d runs on", p.PID)
		}
	}

	for _, p := range daemonsInUse {
		if !p.Alive() {
			t.Errorf("process %d of a lab in use was ended", p.PID)
		}
	}

	if _, err := net.InterfaceByName("e2e-link"); err != nil {
		t.Error(err)
	}

	killCluster()
	testnode.Eventually(t, "the kernel ends the cluster's namespace", func() error {
		user, err := lab.User(cluster)
		if user != "" {
			err = errors.New(user)
		}

		return err
	})
	sweep(t, false)

	for _, path := range append(nodes, cluster) {
		if exists(t, path) {
			t.Errorf("%s is left after its owner's end", path)
		}
	}

	if again := sweep(t, false); strings.Contains(again, "removed") {
		t.Error("the last sweep has left something")
	}
}

// processesOf returns the running processes that name the directory.
func processesOf(t *testing.T, dir string) (found []*process.Process) {
	t.Helper()

	all, err := named()
	must(t, err)

	for _, r := range all {
		if r.dir == dir {
			found = append(found, r.Process)
		}
	}

	return found
}
