package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// debianPackage is a package whose files an image contains.
type debianPackage struct{ Name, Version string }

// toolsOfAgent are the programs of Debian in the agent's image. The agent runs ovs-ofctl, which
// writes the flows of the gateway bridge, and nft, which masquerades in local mode. `ovnkube
// container await-ovs` runs ovsdb-client and ovs-vsctl.
var toolsOfAgent = strings.Fields(`usr/bin/ovs-ofctl usr/sbin/nft usr/bin/ovsdb-client usr/bin/ovs-vsctl`)

// toolsOfOVN are the programs of Debian in the image of OVN and Open vSwitch. `ovnkube container`
// starts the daemons and runs most of the others. ovs-ofctl, ovs-dpctl, ovn-nbctl, ovn-sbctl and
// ovn-appctl are for operators.
var toolsOfOVN = strings.Fields(`usr/bin/ovs-ofctl
	usr/sbin/ovsdb-server usr/bin/ovsdb-tool usr/bin/ovsdb-client usr/bin/ovs-vsctl usr/bin/ovs-appctl
	usr/bin/ovs-dpctl usr/lib/openvswitch-switch/ovs-vswitchd usr/bin/ovn-controller usr/bin/ovn-northd
	usr/bin/ovn-nbctl usr/bin/ovn-sbctl usr/bin/ovn-appctl`)

// schemas are the data of the daemons.
var schemas = []string{
	"usr/share/openvswitch/vswitch.ovsschema",
	"usr/share/ovn/ovn-nb.ovsschema",
	"usr/share/ovn/ovn-sb.ovsschema",
}

// debian is a directory with unpacked packages of Debian.
type debian struct {
	root   string
	owners map[string]debianPackage // by path
}

// unpack downloads and unpacks the packages of all tools. It executes no program of them, because
// their architecture may not be this machine's.
func (r *release) unpack(ctx context.Context, a arch) (*debian, error) {
	archives, err := r.download(ctx, a.name, "openvswitch-switch", "ovn-central", "ovn-host", "nftables")
	if err != nil {
		return nil, err
	}

	d := &debian{root: filepath.Join(r.work, "root-"+a.name), owners: map[string]debianPackage{}}

	unpacked := filepath.Join(r.work, "unpacked-"+a.name)
	if err := os.Mkdir(unpacked, 0o755); err != nil {
		return nil, err
	}

	for _, deb := range archives {
		dir := filepath.Join(unpacked, filepath.Base(deb))
		if _, err := output(ctx, ".", "dpkg-deb", "-x", deb, dir); err != nil {
			return nil, err
		}

		fields, err := output(ctx, ".", "dpkg-deb", "-W", "--showformat", "${Package} ${Version}", deb)
		if err != nil {
			return nil, err
		}

		name, version, _ := strings.Cut(fields, " ")

		err = merge(dir, d.root, func(p string) { d.owners[p] = debianPackage{name, version} })
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", deb, err)
		}
	}

	return d, nil
}

// files returns programs with every library that they load, data, and the packages that own the
// programs.
func (d *debian) files(programs, data []string) ([]file, []debianPackage, error) {
	var (
		out      []file
		packages []debianPackage
	)

	addProgram := func(name, real string) error {
		if slices.ContainsFunc(out, func(f file) bool { return f.name == name }) {
			return fs.SkipDir
		}

		b, err := os.ReadFile(filepath.Join(d.root, real))
		if err != nil {
			return err
		}

		out = append(out, file{name: name, mode: 0o755, content: b})

		owner, ok := d.owners[real]
		if !ok {
			return fmt.Errorf("%s belongs to no package", real)
		}

		if !slices.Contains(packages, owner) {
			packages = append(packages, owner)
		}

		return nil
	}

	for _, p := range programs {
		if err := addClosure(d.root, p, addProgram); err != nil {
			return nil, nil, err
		}
	}

	for _, p := range data {
		b, err := os.ReadFile(filepath.Join(d.root, p))
		if err != nil {
			return nil, nil, err
		}

		out = append(out, file{name: p, mode: 0o644, content: b})
	}

	slices.SortFunc(packages, func(a, b debianPackage) int { return strings.Compare(a.Name, b.Name) })

	return out, packages, nil
}

// download fetches the packages with all that they depend on, from an empty machine's view, and
// returns their paths. apt checks signatures.
func (r *release) download(ctx context.Context, arch string, packages ...string) ([]string, error) {
	dir := filepath.Join(r.work, "apt-"+arch)
	for _, d := range []string{"state/lists/partial", "cache/archives/partial", "etc/preferences.d"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}

	const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

	source := fmt.Sprintf("deb [arch=%s signed-by=%s] %s %s main\n", arch, keyring, r.mirror, r.suite)

	err := errors.Join(os.WriteFile(filepath.Join(dir, "sources.list"), []byte(source), 0o644),
		os.WriteFile(filepath.Join(dir, "status"), nil, 0o644))
	if err != nil {
		return nil, err
	}

	config := fmt.Sprintf(`Dir::State "%[1]s/state"; Dir::State::status "%[1]s/status"; Dir::Cache "%[1]s/cache"; Dir::Etc "%[1]s/etc";
Dir::Etc::sourcelist "%[1]s/sources.list"; Dir::Etc::sourceparts "-"; Dir::Log "%[1]s";
APT::Architecture "%[2]s"; APT::Architectures { "%[2]s"; }; APT::Sandbox::User "root"; APT::Install-Recommends "false";
`, dir, arch)
	if err := os.WriteFile(filepath.Join(dir, "apt.conf"), []byte(config), 0o644); err != nil {
		return nil, err
	}

	install := append([]string{"-qq", "-y", "--download-only", "install"}, packages...)
	for _, args := range [][]string{{"-qq", "update"}, install} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)

		cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(dir, "apt.conf"),
			"DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}

	debs, err := filepath.Glob(filepath.Join(dir, "cache/archives/*.deb"))
	if err == nil && len(debs) == 0 {
		err = errors.New("apt-get downloaded nothing")
	}

	slices.Sort(debs)

	return debs, err
}

// merge moves the files of an unpacked package into the root, and calls record with the path of
// each. Old packages have files in /lib, which is a link to /usr/lib today.
func merge(from, root string, record func(path string)) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		name, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}

		name = belowUsr(name)

		target := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}

		record(name)

		return os.Rename(p, target)
	})
}

// mergedDirs are the directories that Debian has merged into those below /usr. They are links.
var mergedDirs = []string{"bin", "sbin", "lib", "lib64"}

// belowUsr returns a path with the directories of today: usr/lib for lib.
func belowUsr(name string) string {
	if top, _, _ := strings.Cut(name, "/"); slices.Contains(mergedDirs, top) {
		return path.Join("usr", name)
	}

	return name
}

// addClosure calls add for the program, its interpreter, and every library that they need. name is
// the path by which a program finds the file, real the path of the file itself. add returns
// fs.SkipDir for a file that it has added before.
func addClosure(root, program string, add func(name, real string) error) error {
	name, real, err := resolve(root, program)
	if err != nil {
		return err
	}

	if err := add(name, real); errors.Is(err, fs.SkipDir) {
		return nil
	} else if err != nil {
		return err
	}

	needed, err := neededFiles(root, real)
	if err != nil {
		return err
	}

	for _, library := range needed {
		libraryPath := library
		if !strings.HasPrefix(library, "/") {
			if libraryPath, err = findLibrary(root, library); err != nil {
				return fmt.Errorf("%s: %w", real, err)
			}
		}

		if err := addClosure(root, libraryPath, add); err != nil {
			return err
		}
	}

	return nil
}

// neededFiles returns the libraries that an ELF file imports, by name, and the path of its
// interpreter, which is the dynamic linker.
func neededFiles(root, real string) ([]string, error) {
	f, err := elf.Open(filepath.Join(root, real))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", real, err)
	}
	defer f.Close()

	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", real, err)
	}

	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err != nil {
				return nil, fmt.Errorf("read interpreter of %s: %w", real, err)
			}

			needed = append(needed, strings.TrimRight(string(b), "\x00"))
		}
	}

	return needed, nil
}

// findLibrary returns the path at which the dynamic linker finds a library.
func findLibrary(root, library string) (string, error) {
	for _, dir := range []string{"usr/lib/*-linux-gnu*", "usr/lib", "usr/lib64"} {
		if found, _ := filepath.Glob(filepath.Join(root, dir, library)); len(found) > 0 {
			return filepath.Rel(root, found[0])
		}
	}

	return "", fmt.Errorf("library %s is in no package", library)
}

// resolve follows symbolic links inside the root. Both results are relative to the root: name is
// the path p with the directories of today, and real that of the file to which the links lead.
func resolve(root, p string) (name, real string, err error) {
	relative := func(p string) string { return belowUsr(strings.TrimPrefix(path.Clean("/"+p), "/")) }

	name = relative(p)
	real = name

	for range 8 { // more links are a loop
		to, err := os.Readlink(filepath.Join(root, real))
		if err != nil {
			if _, err := os.Stat(filepath.Join(root, real)); err != nil {
				return "", "", fmt.Errorf("find %s: %w", name, err)
			}

			return name, real, nil
		}

		if !path.IsAbs(to) {
			to = path.Join(path.Dir(real), to)
		}

		real = relative(to)
	}

	return "", "", fmt.Errorf("find %s: too many links", name)
}
