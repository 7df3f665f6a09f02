package ovnd

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/authority"
	"github.com/ovn-ebpf/ovn-ebpf/test/kube"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
	"github.com/ovn-ebpf/ovn-ebpf/test/tether"
)

func TestMain(m *testing.M) {
	os.Exit(tether.Run(func() int {
		if err := platform.Use(platform.Name(), kube.CacheDir(), os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}

		return m.Run()
	}))
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// member is a process of each daemon with its own address of the loopback.
type member struct {
	Central
	t       *testing.T
	running map[string]*exec.Cmd
}

// members makes the configuration of n members, with certificates.
func members(t *testing.T, n int) []*member {
	t.Helper()
	out, _ := membersWith(t, n)

	return out
}

// membersWith is members, and returns the Secrets.
func membersWith(t *testing.T, n int) ([]*member, authority.Data) {
	t.Helper()

	data, err := authority.Renew(time.Now(), authority.Handover, authority.Data{})
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()

	var all []netip.Addr
	for i := range n {
		all = append(all, netip.AddrFrom4([4]byte{127, 0, 77, byte(i + 1)}))
	}

	var out []*member

	for i := range n {
		own := filepath.Join(dir, fmt.Sprint(i))

		m := &member{t: t, running: map[string]*exec.Cmd{}, Central: Central{
			Members: all, Address: all[i], Dir: own + "/data", RunDir: own,
			TLS: TLS{Key: own + "/privkey.pem", Cert: own + "/cert.pem", CA: own + "/cacert.pem"},
		}}
		if err := os.Mkdir(own, 0o755); err != nil {
			t.Fatal(err)
		}

		m.certificates(data)
		out = append(out, m)

		t.Cleanup(func() { m.stop() })
	}

	return out, data
}

// certificates brings the files of a Secret into the directory of the processes as kubelet does:
// all files change at once, when a link is replaced. Open vSwitch never loads a new certificate
// that is written after it has read the new private key.
func (m *member) certificates(data authority.Data) {
	m.t.Helper()

	dir, err := os.MkdirTemp(m.RunDir, "..")
	if err != nil {
		m.t.Fatal(err)
	}

	link := filepath.Join(m.RunDir, "..data")
	for name, content := range data["ovn-ebpf-central"] {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			m.t.Fatal(err)
		}

		if err := os.Symlink("..data/"+name, filepath.Join(m.RunDir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			m.t.Fatal(err)
		}
	}

	if err := os.Symlink(filepath.Base(dir), link+".new"); err != nil {
		m.t.Fatal(err)
	}

	if err := os.Rename(link+".new", link); err != nil {
		m.t.Fatal(err)
	}
}

// start starts both databases and the relay, as three containers do.
func (m *member) start() {
	m.t.Helper()

	for _, d := range Databases() {
		argv, err := m.Database(m.t.Context(), d, silent)
		if err != nil {
			m.t.Fatal(err)
		}

		m.spawn(d.file, argv)
	}

	relay := m.Central
	relay.TLS.CA = m.RunDir + "/node-cacert.pem"

	argv, err := relay.Relay(m.t.Context(), silent)
	if err != nil {
		m.t.Fatal(err)
	}

	m.spawn(relayName, argv)
}

func (m *member) startNorthd() {
	m.t.Helper()

	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()

	argv, err := m.Northd(ctx, silent)
	if err != nil {
		m.t.Fatal(err)
	}

	m.spawn("ovn-northd", argv)
}

func (m *member) spawn(name string, argv []string) {
	m.t.Helper()

	log, err := os.OpenFile(filepath.Join(m.RunDir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()

	cmd := exec.Command(argv[0], argv[1:]...)

	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, m.RunDir
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}

	m.running[name] = cmd
}

// stop kills everything at once.
func (m *member) stop() {
	for name, cmd := range m.running {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()

		delete(m.running, name)
	}
}

func (m *member) show() string {
	var out strings.Builder

	logs, _ := filepath.Glob(m.RunDir + "/*.log")
	for _, log := range logs {
		b, _ := os.ReadFile(log)
		fmt.Fprintf(&out, "%s:\n%s\n", log, b)
	}

	return out.String()
}

// ask runs ovn-nbctl or ovn-sbctl at all members by TLS.
func (m *member) ask(program string, args ...string) (string, error) {
	d := Databases()[0]
	if program == "ovn-sbctl" {
		d = Databases()[1]
	}

	argv := append([]string{program, "--timeout=60", "--db=" + m.remotes(d)}, m.TLS.options()...)
	out, err := run(m.t.Context(), append(argv, args...)...)

	return strings.TrimSpace(string(out)), err
}

// must repeats a command while there is no leader: the tools try each member once.
func (m *member) must(program string, args ...string) string {
	m.t.Helper()

	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()

	var out string

	err := await(ctx, func() (err error) { out, err = m.ask(program, args...); return err })
	if err != nil {
		m.t.Fatalf("%v\n%s", err, m.show())
	}

	return out
}

// TestOneMember: a database is created once, northd answers through it, and a restart keeps the
// rows.
func TestOneMember(t *testing.T) {
	m := members(t, 1)[0]
	m.start()
	m.startNorthd()
	m.must("ovn-nbctl", "--wait=sb", "--may-exist", "ls-add", "s1")
	m.stop()
	m.start()
	m.startNorthd()
	m.must("ovn-nbctl", "--wait=sb", "--may-exist", "ls-add", "s2")

	if got := m.must("ovn-sbctl", "--bare", "--columns=_uuid", "list", "Datapath_Binding"); len(strings.Fields(got)) != 2 {
		t.Errorf("datapaths %q, want two", got)
	}
}

// TestThreeMembers: the first member waits for the answers of all others; one is lost and a change
// is accepted; the first member loses its disk and joins the others, instead of a cluster of its
// own.
func TestThreeMembers(t *testing.T) {
	all := members(t, 3)
	all[2].start()

	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if argv, err := all[0].Database(short, Databases()[0], silent); err == nil {
		t.Fatalf("starts %v while another member does not answer: it might be in a cluster", argv)
	}

	all[1].start()
	all[0].start()

	for _, m := range all {
		m.startNorthd()
	}

	all[1].must("ovn-nbctl", "--wait=sb", "--may-exist", "ls-add", "s1")

	id, err := all[0].clusterID(t.Context(), Databases()[0], all[1].Address)
	if err != nil || id == "" {
		t.Fatalf("cluster %q: %v", id, err)
	}

	if out, err := run(t.Context(), "ovn-appctl", "-t", all[0].path(Databases()[0], ".ctl"), "cluster/status", "OVN_Northbound"); err != nil || !strings.Contains(string(out), "Election timer: 10000") {
		t.Errorf("status %s: %v", out, err)
	}

	all[0].stop()
	all[1].must("ovn-nbctl", "--wait=sb", "--may-exist", "ls-add", "s2")

	for _, d := range Databases() { // as after the loss of a disk the administrator does
		out, err := run(t.Context(), "ovn-appctl", "-t", all[1].path(d, ".ctl"), "cluster/status", d.Name)
		if err != nil {
			t.Fatal(err)
		}

		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); strings.Contains(line, all[0].Address.String()) {
				if _, err := run(t.Context(), "ovn-appctl", "-t", all[1].path(d, ".ctl"), "cluster/kick", d.Name, f[0]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}

	if err := os.RemoveAll(all[0].Dir); err != nil {
		t.Fatal(err)
	}

	all[0].start()
	all[0].startNorthd()

	if again, err := all[1].clusterID(t.Context(), Databases()[0], all[0].Address); err != nil || again != id {
		t.Errorf("the first member is in cluster %q, the others in %q: %v", again, id, err)
	}

	if got := all[0].must("ovn-nbctl", "--bare", "--columns=name", "list", "Logical_Switch"); strings.Join(strings.Fields(got), " ") != "s1 s2" && strings.Join(strings.Fields(got), " ") != "s2 s1" {
		t.Errorf("switches %q", got)
	}
}

// TestRestore: rows of a backup come back as they were but for their UUIDs, whatever changed since.
func TestRestore(t *testing.T) {
	m := members(t, 1)[0]
	m.start()
	m.startNorthd()
	m.must("ovn-nbctl", "--wait=sb", "--may-exist", "ls-add", "s1", "--", "--may-exist", "lsp-add", "s1", "p1", "--", "set", "Logical_Switch", "s1", "external_ids:a=b")

	rows := func() string {
		t.Helper()

		switches := m.must("ovn-nbctl", "--columns=name,external_ids", "list", "Logical_Switch")

		return switches + "\nports " + m.must("ovn-nbctl", "--bare", "--columns=name", "list", "Logical_Switch_Port")
	}
	before, dir, now := rows(), t.TempDir(), time.Now()

	made, err := m.Backup(t.Context(), dir, 2, now)
	if err != nil {
		t.Fatal(err)
	}

	m.must("ovn-nbctl", "--wait=sb", "--may-exist", "ls-add", "s2", "--", "--if-exists", "ls-del", "s1")

	if rows() == before {
		t.Fatal("nothing changed")
	}

	if err := m.Restore(t.Context(), made, false); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(before, rows()); diff != "" {
		t.Errorf("rows (-before +restored)\n%s", diff)
	}

	m.must("ovn-nbctl", "--wait=sb", "sync") // northd works on
	otherSchema(t, made+"/ovnnb_db.db")

	if err := m.Restore(t.Context(), made, false); err == nil {
		t.Error("a backup of another schema version is restored without force")
	}

	if err := m.Restore(t.Context(), made, true); err != nil {
		t.Error(err)
	}

	old, running := "2026-01-01T00-00-00Z.new", now.UTC().Add(time.Second).Format(backupLayout)+".new"
	for _, name := range []string{old, running} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	for i := range 3 {
		if _, err := m.Backup(t.Context(), dir, 2, now.Add(time.Duration(i+1)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}

	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}

	if len(names) != 3 || !slices.Contains(names, running) || slices.Contains(names, old) {
		t.Errorf("left %v, want two backups and %s", names, running)
	}
}

// otherSchema gives a backup another schema version. Each record is a line with the length and the
// SHA-1 of the JSON after it, and the schema is the first record.
func otherSchema(t *testing.T, file string) {
	t.Helper()

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var (
		size int
		sum  string
	)
	if _, err := fmt.Sscanf(string(text), "OVSDB JSON %d %s\n", &size, &sum); err != nil {
		t.Fatal(err)
	}

	start := bytes.IndexByte(text, '\n') + 1
	schema, rows := string(text[start:start+size]), text[start+size:]
	version := mustRun(t, "ovsdb-tool", "db-version", file)
	schema = strings.Replace(schema, `"version":"`+version, `"version":"9`+version, 1)

	out := fmt.Appendf(nil, "OVSDB JSON %d %x\n%s", len(schema), sha1.Sum([]byte(schema)), schema)
	if err := os.WriteFile(file, append(out, rows...), 0o600); err != nil {
		t.Fatal(err)
	}

	if got := mustRun(t, "ovsdb-tool", "db-version", file); got != "9"+version {
		t.Fatalf("the version is %s", got)
	}
}

// TestOtherCertificates: the servers refuse clients with certificates of another authority. When
// the servers' files change to that authority's, the running servers accept these clients.
func TestOtherCertificates(t *testing.T) {
	m := members(t, 1)[0]
	m.start()
	m.startNorthd()
	m.must("ovn-nbctl", "--wait=sb", "--may-exist", "ls-add", "s1")

	data, err := authority.Renew(time.Now(), authority.Handover, authority.Data{})
	if err != nil {
		t.Fatal(err)
	}

	other := *m
	other.RunDir = t.TempDir()
	other.TLS = TLS{Key: other.RunDir + "/privkey.pem", Cert: other.RunDir + "/cert.pem", CA: other.RunDir + "/cacert.pem"}
	other.certificates(data)

	query := []string{"--timeout=3", "get", "NB_Global", ".", "nb_cfg"}
	if out, err := other.ask("ovn-nbctl", query...); err == nil {
		t.Fatalf("a stranger is answered %q", out)
	}

	m.certificates(data)
	other.must("ovn-nbctl", query...)
	other.must("ovn-nbctl", "--wait=sb", "--may-exist", "ls-add", "s2") // northd's connection, too
}

func TestMembers(t *testing.T) {
	for text, ok := range map[string]bool{"192.0.2.1": true, "node1=192.0.2.1,node2=192.0.2.2": true, "192.0.2.1, 2001:db8::1": true, "": false, "node1": false, "192.0.2.1,192.0.2.1": false} {
		if _, err := ParseMembers(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}

	c := Central{Members: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Address: netip.MustParseAddr("192.0.2.2")}
	if err := c.Validate(); err == nil {
		t.Error("a foreign address is a member")
	}
}

// TestMemberRecoversFromFullDisk: a server of a database refuses all changes after a failed write,
// also when there is space again. CheckMember says so; the next server starts when there is space.
func TestMemberRecoversFromFullDisk(t *testing.T) {
	m, d := members(t, 1)[0], Databases()[0]
	if err := os.Mkdir(m.Dir, 0o755); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Mount("tmpfs", m.Dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatalf("mount (needs root): %v", err)
	}

	t.Cleanup(func() {
		m.stop()

		if err := syscall.Unmount(m.Dir, 0); err != nil {
			t.Error(err)
		}
	})

	start := func(ctx context.Context) error {
		argv, err := m.Database(ctx, d, silent)
		if err == nil {
			m.spawn(d.file, argv)
		}

		return err
	}
	write := func() error {
		_, err := run(t.Context(), "ovsdb-client", "--timeout=5", "transact", m.socket(d),
			`["OVN_Northbound",{"op":"insert","table":"Address_Set","row":{"name":"`+strings.Repeat("x", 5000)+fmt.Sprint(time.Now().UnixNano())+`"}}]`)

		return err
	}

	if err := start(t.Context()); err != nil {
		t.Fatal(err)
	}

	eventually(t, write)

	if err := errors.Join(m.CheckMember(t.Context(), d), m.CheckSpace()); err != nil {
		t.Errorf("a member with space: %v", err)
	}

	filler := filepath.Join(m.Dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("8 MiB in 4 MiB: %v", err)
	}

	if err := m.CheckSpace(); err == nil || !strings.Contains(err.Error(), m.Dir+" for OVN's databases: free space there") {
		t.Errorf("full disk: %v", err)
	}

	eventually(t, func() error {
		_ = write()

		if err := m.CheckMember(t.Context(), d); err == nil {
			return errors.New("no error")
		}

		return nil
	})
	m.stop()

	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()

	if err := start(short); err == nil || !strings.Contains(err.Error(), "no space left in "+m.Dir) {
		t.Errorf("start on a full disk: %v", err)
	}

	if err := m.CheckMember(t.Context(), d); err != nil {
		t.Errorf("a member that does not answer: %v", err)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}

	if err := start(t.Context()); err != nil {
		t.Fatal(err)
	}

	eventually(t, write)
}

// eventually waits at most half a minute until check returns nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	if err := await(ctx, check); err != nil {
		t.Fatal(err)
	}
}
