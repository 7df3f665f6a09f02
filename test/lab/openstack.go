package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ovn-ebpf/ovn-ebpf/test/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/process"
)

const keystonePort, neutronPort = 5000, 9696

// vifFile has the UUIDs of the VMs' ports by the VMs' names.
const vifFile = "vifs.json"

// OpenStack returns the cloud of a lab that this process brought up with Options.Cloud, else nil.
func (l *Lab) OpenStack() *cloud.Cloud { return l.openStack }

// CloudsFile returns the path of the clouds.yaml of a lab with Options.Cloud.
func (l *Lab) CloudsFile() string { return l.path("cloud/clouds.yaml") }

// cloudOptions returns where Keystone and Neutron run: in the fabric.
func (l *Lab) cloudOptions() cloud.Options {
	central := netip.MustParseAddr(CentralIP4)

	return cloud.Options{
		Dir: l.path("cloud"), Cache: l.opts.CacheDir, Netns: l.fabric(),
		Keystone: netip.AddrPortFrom(central, keystonePort), Neutron: netip.AddrPortFrom(central, neutronPort),
		OVN: l.path("central"), NB: nbSocket, SB: sbSocket,
		Spawn: func(name string, argv ...string) (*process.Process, error) {
			return l.spawn(l.fabric(), name, nil, argv...)
		},
	}
}

// startOpenStack starts Keystone and Neutron.
func (l *Lab) startOpenStack(ctx context.Context) error {
	o := l.cloudOptions()
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}

	c, err := cloud.Run(ctx, o)
	if err != nil {
		return err
	}

	l.openStack = c
	l.step("cloud: Keystone at http://%s, Neutron at http://%s", o.Keystone, o.Neutron)

	return nil
}

// neutronNetwork has Neutron make the network of the VMs with its router, and the VMs' ports. The
// operator makes the external network and the router's place in it, and binds the ports to
// hypervisors, as Nova does. The rest is the project's.
func (l *Lab) neutronNetwork(ctx context.Context) error {
	operator := cloud.Batch{API: l.openStack.Admin}
	public := operator.Create(ctx, "network", cloud.Object{
		"name": publicNetwork, "router:external": true,
		"provider:network_type": "flat", "provider:physical_network": physicalNetwork,
	})
	operator.Create(ctx, "subnet", cloud.Object{
		"network_id": public, "name": publicNetwork, "ip_version": 4, "cidr": "172.30.0.0/24",
		"gateway_ip": ExtIP4, "enable_dhcp": false,
		"allocation_pools": []cloud.Object{{"start": RouterIP4, "end": RouterIP4}},
	})
	// Hosts outside reach VMs and pods by their own addresses.
	router := operator.Create(ctx, "router", cloud.Object{
		"name": cloudRouter, "project_id": l.openStack.Project,
		"external_gateway_info": cloud.Object{"network_id": public, "enable_snat": false},
	})
	if operator.Err != nil {
		return fmt.Errorf("make external network: %w", operator.Err)
	}

	project := cloud.Batch{API: l.openStack.Tenant}
	network := project.Create(ctx, "network", cloud.Object{"name": vmNetwork})
	subnet := project.Create(ctx, "subnet", cloud.Object{
		"network_id": network, "name": vmNetwork, "ip_version": 4, "cidr": vmGateway.Masked().String(),
		"gateway_ip": vmGateway.Addr().String(), "enable_dhcp": false,
	})
	project.Put(ctx, "/v2.0/routers/"+router+"/add_router_interface", cloud.Object{"subnet_id": subnet})

	// The group's own rules allow all packets that VMs send.
	group := project.Create(ctx, "security_group", cloud.Object{"name": vmNetwork})
	project.Create(ctx, "security_group_rule", cloud.Object{
		"security_group_id": group, "direction": "ingress", "ethertype": "IPv4",
	})

	vifs := map[string]string{}
	for _, v := range l.machines() {
		vifs[v.Name] = project.Create(ctx, "port", cloud.Object{
			"network_id": network, "name": v.Name, "mac_address": v.MAC.String(),
			"fixed_ips": []cloud.Object{{"ip_address": v.IP4.String()}}, "security_groups": []string{group},
		})
		operator.Put(ctx, "/v2.0/ports/"+vifs[v.Name], cloud.Object{"port": cloud.Object{
			"binding:host_id": v.Hypervisor.Name, "device_owner": "compute:nova",
			"device_id": cloudUUID(cloudServer, v.Index, 0),
		}})
	}

	for _, err := range []error{project.Err, operator.Err} {
		if err != nil {
			return fmt.Errorf("make network of VMs: %w", err)
		}
	}

	return l.keepVIFs(vifs)
}

// ProjectName is the name of the cluster in Neutron, in a lab with Options.Cloud.
const ProjectName = "k8s"

// projectConfig returns the path of the controller's settings about the cloud.
func (l *Lab) projectConfig() string { return l.path("cloud/ovn_k8s.conf") }

// initProject makes what the cluster needs in its OpenStack project, as an operator does, and keeps
// the settings that the command prints.
func (l *Lab) initProject(ctx context.Context) error {
	config, err := l.Exec(ctx, "central", filepath.Join(l.opts.BinDir, controllerProgram),
		"ovn-k8s-underlay", "master-init", "--cloud", "k8s", "--clouds-file", l.CloudsFile(),
		"--cluster-name", ProjectName, "--vm-network", vmNetwork)
	if err != nil {
		return err
	}

	l.step("router, subnet pool and security group of the cluster")

	return os.WriteFile(l.projectConfig(), config, 0o644)
}

// keepVIFs records the UUIDs of the VMs' ports for Open.
func (l *Lab) keepVIFs(vifs map[string]string) error {
	text, err := json.Marshal(vifs)
	if err != nil {
		return err
	}

	l.vifs = vifs

	return os.WriteFile(l.path(vifFile), text, 0o644)
}

// loadVIFs reads the record of keepVIFs, which is missing if Up was killed early.
func (l *Lab) loadVIFs() error {
	text, err := os.ReadFile(l.path(vifFile))
	if os.IsNotExist(err) {
		return nil
	}

	if err != nil {
		return err
	}

	return json.Unmarshal(text, &l.vifs)
}
