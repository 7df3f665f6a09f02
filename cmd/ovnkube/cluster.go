package main

import (
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// clusterFlags are the settings of all roles: access to the cluster, its networks, and logging.
type clusterFlags struct {
	mode string // modeOverlay or modeUnderlay
	api  apiServer

	// OVN's databases. An address is a list, separated by commas, of the members of a raft cluster.
	nbAddress, sbAddress string
	nbTLS, sbTLS         nb.TLS

	// Networks.
	subnets      clusterSubnets // of pods
	serviceCIDRs prefixes
	externalIPs  prefixes // in which externalIPs of Services may be
	podTunnels   prefixes // to which pods may send Geneve packets
	hostNetworks prefixes // of further addresses of nodes that are trusted
	snatPorts    cluster.PortRange
	mtu          int // bytes; 0: derived from the uplink's
	bfd          bool

	chassisName string // chassisSystemID or chassisNode
	trustSlices bool   // believe the control plane's label of EndpointSlices
	shares      service.Shares

	metricsAddress string // "": none, or the role's default if the process has both roles
	metricsTLS     endpoint.TLS
	log            logFlags
}

func newClusterFlags(metricsAddress string) *clusterFlags {
	return &clusterFlags{
		mode:      modeOverlay,
		nbAddress: "unix:/run/ovn/ovnnb_db.sock",
		sbAddress: "unix:/run/ovn/ovnsb_db.sock",
		subnets: clusterSubnets{
			{mustPrefix("10.244.0.0/16"), 24},
		},
		serviceCIDRs: prefixes{mustPrefix("10.96.0.0/16")},
		chassisName:  chassisSystemID,
		shares: service.Shares{
			Namespace:    service.DefaultNamespaceFrontends,
			Tables:       service.DefaultTableShare,
			FlowsPerNode: service.DefaultFlowsPerNode,
		},
		snatPorts:      cluster.PortRange{First: 49152, Last: 65535},
		metricsAddress: metricsAddress,
		log:            logFlags{level: 4, megabytes: 100, backups: 5, daysKept: 5},
	}
}

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// Values of chassis-name: the source of the name of a node's chassis.
const (
	chassisSystemID = "system-id"
	chassisNode     = "node"
)

// sameValue ends the usage text of settings that must agree. Without the agreement, controller and
// agents would decide differently about the same packet or object.
const sameValue = ". The controller and all agents must have the same value"

func (c *clusterFlags) settings() []*setting.Setting {
	list := []*setting.Setting{
		{
			Flag: "mode", Section: "default", Key: "mode",
			Value: setting.Choice(&c.mode, modeOverlay, modeUnderlay),
			Usage: "`network` of pods: overlay or underlay. With overlay, Geneve tunnels connect the Open " +
				"vSwitch of all nodes. With underlay, each pod has a Neutron port of its own, on nodes " +
				"that are VMs of an OpenStack project (docs/underlay.md)" + sameValue,
		},
		{
			Flag:    "cluster-subnets",
			Section: "default",
			Key:     "cluster-subnets",
			Value:   &c.subnets,
			About:   []string{"cluster subnet"},
			Usage: "pod `networks` CIDR[/HOSTLEN], separated by commas. HOSTLEN is the prefix length of " +
				"each node's subnet. Without it, the length is 24 for IPv4 and 64 for IPv6" + sameValue,
		},
		{
			Flag:    "k8s-service-cidrs",
			Section: "kubernetes",
			Key:     "service-cidrs",
			Value:   &c.serviceCIDRs,
			About:   []string{"service CIDR"},
			Usage: "Service `networks`, separated by commas. The networks must contain all Service " +
				"networks of the API server (its flag --service-cluster-ip-range)" + sameValue,
		},
		{
			Flag:    "allow-external-ips",
			Section: "kubernetes",
			Key:     "allow-external-ips",
			Value:   optionalPrefixes{&c.externalIPs},
			About:   []string{"external IPs"},
			Usage: "`networks` that externalIPs of Services may be in, separated by commas; default: none. " +
				"The author of a Service can intercept the cluster's traffic to any address in these " +
				"networks (CVE-2020-8554)" + sameValue,
		},
		{
			Flag:    "allow-pod-tunnels",
			Section: "kubernetes",
			Key:     "allow-pod-tunnels",
			Value:   tunnelRanges{optionalPrefixes{&c.podTunnels}},
			Usage: "`networks` outside of the cluster to which pods may send Geneve packets (UDP port " +
				"6081), separated by commas; default: none. Set it if pods have Geneve tunnels of their " +
				"own. Addresses of nodes are always excluded. At most four networks of each IP family are " +
				"possible" + sameValue,
		},
		{
			Flag:    "host-networks",
			Section: "kubernetes",
			Key:     "host-networks",
			Value:   optionalPrefixes{&c.hostNetworks},
			About:   []string{"host networks"},
			Usage: "`networks` with further addresses of the nodes, separated by commas; default: none. " +
				"Agents publish the addresses of their nodes. Such an address counts only if it is also in " +
				"the status of the Node object, which agents cannot write, or in these networks. At other " +
				"addresses of a node, no node port is served" + sameValue,
		},
		{
			Flag:    "chassis-name",
			Section: "default",
			Key:     "chassis-name",
			Value:   setting.Choice(&c.chassisName, chassisSystemID, chassisNode),
			Usage: "`source` of the node's chassis name in OVN: system-id or node. With system-id, the " +
				"agent keeps an existing system-id of Open vSwitch. With node, the agent always sets the " +
				"system-id to the name of the Node, and the controller accepts no other name. The chart " +
				"sets the value node if it issues the certificates of the nodes (without ovn.host=true), " +
				"because these have the names of the Nodes" + sameValue,
		},
		{
			Flag:    "trust-endpoint-slices",
			Section: "kubernetes",
			Key:     "trust-endpoint-slices",
			Value:   setting.Switch(&c.trustSlices),
			Usage: "allow endpoints of the control plane's EndpointSlices at ports that are reserved for " +
				"hosts. Ports of ssh, kubelet and other programs are reserved (docs/services.md). A label " +
				"identifies the control plane's EndpointSlices. The admission policy " +
				"ovn-ebpf-endpoint-slices keeps other clients from writing this label, so do not set the " +
				"value true without this policy. From Kubernetes 1.30 on, the chart installs the policy and " +
				"sets the value true" + sameValue,
		},
		{
			Flag:    "namespace-frontends",
			Section: "kubernetes",
			Key:     "namespace-frontends",
			Value:   setting.Number(&c.shares.Namespace, 1, 131072),
			About:   []string{"frontends of a namespace"},
			Usage: "maximum `number` of frontends of all Services in a namespace. A Service has a " +
				"frontend for each of its ports at each of its addresses. The limits of a namespace for " +
				"backends, external addresses and flows are proportional to this value (docs/services.md). " +
				"For example, 32768 doubles them. If a namespace exceeds a limit, its oldest Services are " +
				"served" + sameValue,
		},
		{
			Flag:    "service-table-share",
			Section: "kubernetes",
			Key:     "service-table-share",
			Value:   setting.Number(&c.shares.Tables, 1, 95),
			About:   []string{"share of Services in the tables"},
			Usage: "`percentage` of a node's Service tables that the Services of all namespaces may use. " +
				"The rest is reserved for host ports of pods" + sameValue,
		},
		{
			Flag:    "service-flows-per-node",
			Section: "kubernetes",
			Key:     "service-flows-per-node",
			Value:   setting.Number(&c.shares.FlowsPerNode, 1, 1<<20),
			About:   []string{"flows of Services per node"},
			Usage: "`number` of flows that each node adds to the total of the Services of all namespaces. " +
				"The flows of all Services on each node do not exceed this total. The number of nodes is " +
				"rounded up to a power of two, and at least 8 (docs/services.md). If the Services need " +
				"more, the total is divided among the namespaces" + sameValue,
		},
		{
			Flag:    "mtu",
			Section: "default",
			Key:     "mtu",
			Value:   setting.Number(&c.mtu, 0, 65535),
			About:   []string{"MTU"},
			Usage: "MTU of pods in `bytes` (0: the MTU of the uplink minus the encapsulation). Each agent " +
				"publishes the MTU of its node's pods. The controller uses its own value, or 1400 if that is " +
				"0, for nodes that have published none",
		},
		{
			Flag:    "snat-port-range",
			Section: "gateway",
			Key:     "snat-port-range",
			Value:   &c.snatPorts,
			About:   []string{"SNAT port range"},
			Usage: "`ports` FIRST-LAST that are reserved for OVN's SNAT on every gateway. Connections of " +
				"pods leave the node from these ports, and the host does not choose them for its own " +
				"connections. Each agent publishes its own value. The controller uses its value for nodes " +
				"that have published none",
		},
		{
			Flag:    "gateway-bfd",
			Section: "gateway",
			Key:     "bfd",
			Value:   setting.Switch(&c.bfd),
			Usage: "monitor the next hops of the gateway routers with BFD. OVN uses a next hop only while " +
				"its BFD session is up, so set the value true only if all these routers run BFD. BFD " +
				"packets from the uplink are delivered to both the host and OVN" + sameValue,
		},
		{
			Flag:    "metrics-bind-address",
			Section: "metrics",
			Key:     "bind-address",
			Value:   setting.Text(&c.metricsAddress, optional(checkHostPort)),
			Usage:   "`address` of /metrics, /healthz and /readyz, and of the agent's status page at /",
		},
		{
			Flag:    "node-server-cert",
			Section: "metrics",
			Key:     "node-server-cert",
			Value:   setting.Text(&c.metricsTLS.Certificate),
			About:   []string{"metrics certificate"},
			Usage: "PEM `file` with the certificate for HTTPS at --metrics-bind-address. Without a " +
				"certificate, the address serves HTTP. The file is read at each connection",
		},
		{
			Flag:    "node-server-privkey",
			Section: "metrics",
			Key:     "node-server-privkey",
			Value:   setting.Text(&c.metricsTLS.Key),
			About:   []string{"metrics key"},
			Usage:   "PEM `file` with the private key of --node-server-cert",
		},
		{
			Flag:    "metrics-client-ca-file",
			Section: "metrics",
			Key:     "client-ca-file",
			Value:   setting.Text(&c.metricsTLS.ClientCA),
			About:   []string{"metrics client CA"},
			Usage: "PEM `file` with the CA certificates of clients of --metrics-bind-address. If it is " +
				"set, /metrics and / require a client certificate that one of these CAs has signed. " +
				"/healthz and /readyz do not",
		},
	}
	list = append(list, c.api.settings()...)
	list = append(list, c.log.settings()...)
	list = append(list, databaseSettings("nb", "ovnnorth", "Northbound", &c.nbAddress, "ovn-nb", &c.nbTLS)...)

	return append(list, databaseSettings("sb", "ovnsouth", "Southbound", &c.sbAddress, "ovn-remote", &c.sbTLS)...)
}

// databaseSettings returns the settings of an OVN database: its address, and the files for ssl:
// addresses. They have the names of ovn-kubernetes, which begin with short: nb or sb.
func databaseSettings(
	short, section, name string,
	address *string,
	externalID string,
	files *nb.TLS,
) []*setting.Setting {
	about := map[string]string{"nb": "northbound", "sb": "southbound"}[short] // as errors name the database

	return []*setting.Setting{
		{
			Flag:       short + "-address",
			Section:    section,
			Key:        "address",
			ExternalID: externalID,
			Value:      setting.Text(address, checkDatabaseAddresses),
			About:      []string{about},
			Usage: "`addresses` of OVN's " + name + " database, separated by commas. Each address is unix:PATH, " +
				"tcp:IP:PORT or ssl:IP:PORT. A raft cluster has an address for each member",
		},
		{
			Flag:    short + "-client-privkey",
			Section: section,
			Key:     "client-privkey",
			Value:   setting.Text(&files.Key),
			About:   []string{about + ": load certificate"},
			Usage: "PEM `file` with the client's private key for the " + name + " database; " +
				"default: for ssl: addresses, " +
				sslFile(short, "privkey.pem"),
		},
		{
			Flag:    short + "-client-cert",
			Section: section,
			Key:     "client-cert",
			Value:   setting.Text(&files.Certificate),
			About:   []string{about + ": load certificate"},
			Usage: "PEM `file` with the client's certificate for the " + name + " database; " +
				"default: for ssl: addresses, " +
				sslFile(short, "cert.pem"),
		},
		{
			Flag:    short + "-client-cacert",
			Section: section,
			Key:     "client-cacert",
			Value:   setting.Text(&files.CA),
			About:   []string{about + ": load CA"},
			Usage: "PEM `file` with the CA certificate of the " + name + " database; " +
				"default: for ssl: addresses, " +
				sslFile(short, "ca.cert"),
		},
	}
}

// databases returns the addresses of all members of both OVN databases.
func (c *clusterFlags) databases() []string {
	var all []string

	for _, address := range []string{c.nbAddress, c.sbAddress} {
		list, err := nb.Parse(address)
		if err == nil { // an empty address has none, and mistakes are reported elsewhere
			all = append(all, list...)
		}
	}

	return all
}

// sslFile returns ovn-kubernetes's default path of a file for ssl: addresses.
func sslFile(short, name string) string { return "/etc/openvswitch/ovn" + short + "-" + name }
