package cloud

import (
	"context"
	"net/http"
	"os"
	"strings"
)

// workers are the processes of Neutron that serve its API.
const workers = "2"

func (c *Cloud) directories(names ...string) error {
	for _, name := range names {
		if err := os.MkdirAll(c.path(name), 0o700); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cloud) startNeutron(ctx context.Context) error {
	if err := c.directories("state", "lock"); err != nil {
		return err
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(c.neutron, "http://"), ":")
	err := c.write("neutron.conf", `[DEFAULT]
auth_strategy = keystone
core_plugin = ml2
service_plugins = ovn-router,trunk,qos,port_forwarding
transport_url = fake:///
state_path = `+c.path("state")+`
bind_host = `+host+`
bind_port = `+port+`
api_paste_config = /etc/neutron/api-paste.ini
api_workers = `+workers+`
rpc_workers = 0
rpc_state_report_workers = 0
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[oslo_concurrency]
lock_path = `+c.path("lock")+`
[oslo_policy]
enforce_scope = false
enforce_new_defaults = false
[database]
connection = `+c.database("neutron")+`
[keystone_authtoken]
auth_url = `+c.keystone+`/v3
www_authenticate_uri = `+c.keystone+`/v3
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
[ml2_type_geneve]
vni_ranges = 1:65536
max_header_size = 38
[securitygroup]
enable_security_group = true
[ovn]
ovn_nb_connection = unix:`+c.path("nb.sock")+`
ovn_sb_connection = unix:`+c.path("sb.sock")+`
ovn_metadata_enabled = false
`)
	if err != nil {
		return err
	}
	if err := c.run(ctx, "neutron-db-manage", "--config-file", c.path("neutron.conf"), "upgrade", "heads"); err != nil {
		return err
	}
	return c.ResumeNeutron(ctx)
}

// ResumeNeutron starts Neutron after StopNeutron, on the same address.
func (c *Cloud) ResumeNeutron(ctx context.Context) error {
	var err error
	c.server, err = c.start(ctx, responds(c.neutron+"/v2.0/networks", http.StatusUnauthorized),
		"neutron-server", "--config-file", c.path("neutron.conf"), "--log-file", c.path("neutron.log"))
	return err
}

// StopNeutron stops Neutron as a crash does.
func (c *Cloud) StopNeutron() error { return c.server.Stop(0) }
