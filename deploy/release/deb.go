package main

import (
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the format
	"github.com/goreleaser/nfpm/v2/files"
)

// deb packs the programs with their systemd units. It enables no unit: the machine's role decides
// which (docs/systemd.md).
func (r *release) deb(a arch) error {
	units := filepath.Join(r.top, "deploy/systemd")
	own := func(source, destination, kind string, mode os.FileMode) *files.Content {
		return &files.Content{
			Source:      source,
			Destination: destination,
			Type:        kind,
			FileInfo:    &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.date},
		}
	}

	program := func(name, destination string) *files.Content {
		return own(filepath.Join(a.programs, name), destination, "", 0o755)
	}

	unit := func(name string) *files.Content {
		return own(filepath.Join(units, name), "/usr/lib/systemd/system/"+name, "", 0o644)
	}

	defaults, license := filepath.Join(units, "ovn-ebpf.default"), filepath.Join(r.top, "LICENSE")
	contents := files.Contents{
		program("ovnkube", "/usr/bin/ovnkube"),
		program("ovn-k8s-cni-overlay", "/opt/cni/bin/ovn-k8s-cni-overlay"),
		unit("ovn-ebpf-agent.service"),
		unit("ovn-ebpf-controller.service"),
		own(defaults, "/etc/default/ovn-ebpf", files.TypeConfigNoReplace, 0o644),
		own(license, "/usr/share/doc/ovn-ebpf/copyright", "", 0o644),
	}

	info := nfpm.WithDefaults(&nfpm.Info{
		Name:       "ovn-ebpf",
		Arch:       a.name,
		Platform:   "linux",
		Version:    r.version,
		Section:    "net",
		Priority:   "optional",
		Maintainer: "ovn-ebpf <maintainers@ovn-ebpf.invalid>",
		License:    "Apache-2.0",
		Homepage:   "https://github.com/ovn-ebpf/ovn-ebpf",
		Description: "OVN as the control plane of Kubernetes networking, eBPF at the gateway\n" +
			"Controller, node agent and CNI plugin, with their systemd units.",
		MTime: r.date,
		Overridables: nfpm.Overridables{
			Depends:    []string{"openvswitch-switch (>= 3.1)", "nftables", "iproute2"},
			Recommends: []string{"ovn-host (>= 23.03)"},
			Suggests:   []string{"ovn-central (>= 23.03)"},
			Contents:   contents,
		},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}

	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}

	f, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer f.Close()

	if err := packager.Package(info, f); err != nil {
		return err
	}

	return f.Close()
}
