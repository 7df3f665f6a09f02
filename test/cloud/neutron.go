package cloud

import (
	"context"
	"net/http"
	"strconv"
)

// workers are the processes of Neutron that serve its API.
const workers = "2"

func (c *Cloud) startNeutron(ctx context.Context) error {
	if err := c.directories("state", "lock"); err != nil {
		return err
	}

	err := c.write("neutron.conf", `[DEFAULT]
auth_strategy = keystone
core_plugin = ml2
service_plugins = ovn-router,trunk,qos,port_forwarding
transport_url = fake:///
state_path = `+inside+`/state
bind_host = `+c.o.Neutron.Addr().String()+`
bind_port = `+strconv.Itoa(int(c.o.Neutron.Port()))+`
api_paste_config = /etc/neutron/api-paste.ini
api_workers = `+workers+`
rpc_workers = 0
rpc_state_report_workers = 0
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[oslo_concurrency]
lock_path = `+inside+`/lock
[oslo_policy]
enforce_scope = false
enforce_new_defaults = false
[database]
connection = `+database("neutron")+`
[keystone_authtoken]
auth_url = `+c.keystone()+`/v3
www_authenticate_uri = `+c.keystone()+`/v3
auth_type = password
username = neutron
password = `+password+`
project_name = service
user_domain_id = default
project_domain_id = default
service_type = network
interface = public
region_name = RegionOne
[ml2]
type_drivers = geneve,flat,vlan,local
tenant_network_types = geneve
mechanism_drivers = ovn
extension_drivers = port_security,qos
overlay_ip_version = 4
[ml2_type_flat]
flat_networks = *
[ml2_type_geneve]
vni_ranges = 1:65536
max_header_size = 38
[securitygroup]
enable_security_group = true
[ovn]
ovn_nb_connection = unix:`+inside+`/ovn/`+c.o.NB+`
ovn_sb_connection = unix:`+inside+`/ovn/`+c.o.SB+`
ovn_metadata_enabled = true
`)
	if err != nil {
		return err
	}

	return c.ResumeNeutron(ctx)
}

// ResumeNeutron starts Neutron after StopNeutron, on the same address.
func (c *Cloud) ResumeNeutron(ctx context.Context) error {
	var err error

	ready := c.responds(c.neutron()+"/v2.0/networks", http.StatusUnauthorized)
	c.server, err = c.start(ctx, "neutron-server", ready, c.o.Inside("neutron-server",
		"--config-file", inside+"/neutron.conf", "--log-file", inside+"/neutron.log")...)

	return err
}

// StopNeutron stops Neutron as a crash does.
func (c *Cloud) StopNeutron() error { return c.server.Stop(0) }
