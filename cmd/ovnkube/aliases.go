package main

import (
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
)

// aliases returns further names of settings: names that ovn-kubernetes has for the same setting,
// and deprecated ones. The command line and the file accept them.
func aliases() []setting.Alias {
	return []setting.Alias{
		{Flag: "k8s-kubeconfig", For: "kubeconfig"},
		{Flag: "ovs-run-dir", For: "ovs-rundir"},
		{
			Flag:    "ephemeral-port-range",
			Section: "gateway",
			Key:     "ephemeral-port-range",
			For:     "snat-port-range",
		},
		{Flag: "join-subnets", For: "gateway-v4-join-subnet", To: joinSubnets},
		{Flag: "cluster-subnet", For: "cluster-subnets", Deprecated: true},
		{
			Flag:       "k8s-service-cidr",
			Section:    "kubernetes",
			Key:        "service-cidr",
			For:        "k8s-service-cidrs",
			Deprecated: true,
		},
		{Flag: "service-cluster-ip-range", For: "k8s-service-cidrs", Deprecated: true},
		{Section: "kubernetes", Key: "metrics-bind-address", For: "metrics-bind-address", Deprecated: true},
		{
			Flag:       "gateway-local",
			For:        "gateway-mode",
			Deprecated: true,
			Bool:       true,
			To:         setting.When(true, "gateway-mode", string(gatewayModeLocal)),
		},
		{
			Flag:       "init-gateways",
			For:        "gateway-mode",
			Deprecated: true,
			Bool:       true,
			To:         setting.When(false, "gateway-mode", string(gatewayModeNone)),
		},
	}
}

// joinSubnets assigns each network of a list to the setting of its family.
func joinSubnets(list string) ([]setting.Assignment, error) {
	var all prefixes
	if err := all.Set(list); err != nil {
		return nil, err
	}

	var out []setting.Assignment

	for _, p := range all {
		name := "gateway-v4-join-subnet"
		if p.Addr().Is6() {
			name = "gateway-v6-join-subnet"
		}

		out = append(out, setting.Assignment{Flag: name, Value: p.String()})
	}

	return out, nil
}

// Reasons why a name of ovn-kubernetes is unused.
const (
	setInOVS   = "set it in external_ids of Open vSwitch, where ovn-controller reads it"
	noFeature  = "ovn-ebpf does not have this feature"
	notNeeded  = "ovn-ebpf does not need it"
	byChart    = "the chart starts the databases, not the controller or the agent (docs/install.md)"
	ownZones   = "OVN chooses its conntrack zones, and the gateway needs none"
	ovsExport  = "set the exporters of Open vSwitch with ovs-vsctl"
	notMetrics = "ovn-ebpf does not serve these metrics"
	noZones    = "ovn-ebpf has one zone: all nodes share OVN's databases"
	noOffload  = "smart NICs are not supported"
)

// unusedNames are keys and flags of ovn-kubernetes without a meaning here.
type unusedNames []setting.UnusedName

// add adds names of a section, with the reason why they are unused. pairs alternates keys and
// flags; a flag may be "".
func (n *unusedNames) add(section, why string, isBool bool, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		*n = append(*n,
			setting.UnusedName{Section: section, Key: pairs[i], Flag: pairs[i+1], Bool: isBool, Why: why})
	}
}

// unused returns the keys and flags of ovn-kubernetes without a meaning here.
func unused() []setting.UnusedName {
	var list unusedNames

	list.add("default", ownZones, false, "conntrack-zone", "conntrack-zone")
	list.add("default", setInOVS, false,
		"inactivity-probe", "inactivity-probe",
		"openflow-probe", "openflow-probe",
		"ofctrl-wait-before-clear", "ofctrl-wait-before-clear",
		"lflow-cache-limit", "lflow-cache-limit",
		"lflow-cache-limit-kb", "lflow-cache-limit-kb")
	list.add("default", setInOVS, true, "monitor-all", "monitor-all", "enable-lflow-cache", "enable-lflow-cache")
	list.add("default", notNeeded, false, "routable-mtu", "routable-mtu", "db-txn-timeout", "db-txn-timeout")
	list.add("default", notNeeded, true, "enable-udp-aggregation", "")
	list.add("default", noZones, false, "zone", "zone")
	list.add("default", noFeature, false, "udn-allowed-default-services", "udn-allowed-default-services")
	list.add("logging", "errors of the CNI plugin and of database clients are in the logs of agent and controller", false,
		"cnilogfile", "cnilogfile",
		"libovsdblogfile", "libovsdblogfile")
	list.add("monitoring", ovsExport, false,
		"netflow-targets", "netflow-targets",
		"sflow-targets", "sflow-targets",
		"ipfix-targets", "ipfix-targets")
	list.add("ipfix", ovsExport, false,
		"sampling", "ipfix-sampling",
		"cache-max-flows", "ipfix-cache-max-flows",
		"cache-active-timeout", "ipfix-cache-active-timeout")
	list.add("cni", "the plugin is always ovn-k8s-cni-overlay", false, "plugin", "cni-plugin")
	list.add("kubernetes", "ovn-ebpf does not request certificates, use kubeconfig", false,
		"bootstrap-kubeconfig", "bootstrap-kubeconfig",
		"cert-dir", "cert-dir",
		"cert-duration", "cert-duration")
	list.add("kubernetes", notNeeded, false,
		"ovn-config-namespace", "ovn-config-namespace",
		"host-network-namespace", "host-network-namespace",
		"platform-type", "platform-type",
		"dns-service-namespace", "dns-service-namespace",
		"dns-service-name", "dns-service-name")
	list.add("kubernetes", noFeature, false, "no-hostsubnet-nodes", "no-hostsubnet-nodes")
	list.add("kubernetes", noFeature, true, "ovn-empty-lb-events", "ovn-empty-lb-events")
	list.add("kubernetes", notNeeded, true, "disable-requestedchassis", "disable-requestedchassis")
	list.add("kubernetes", notMetrics, false, "ovn-metrics-bind-address", "")
	list.add("kubernetes", notMetrics, true, "metrics-enable-pprof", "")
	list.add("metrics", notMetrics, false, "ovn-metrics-bind-address", "ovn-metrics-bind-address")
	list.add("metrics", notMetrics, true,
		"export-ovs-metrics", "export-ovs-metrics",
		"enable-pprof", "metrics-enable-pprof",
		"enable-config-duration", "metrics-enable-config-duration",
		"enable-scale-metrics", "metrics-enable-scale")

	for _, short := range []string{"nb", "sb"} {
		section := map[string]string{"nb": "ovnnorth", "sb": "ovnsouth"}[short]
		list.add(section, "the CA of a server's certificate is checked, but not its name", false,
			"cert-common-name", short+"-cert-common-name")
		list.add(section, byChart, false,
			"election-timer", short+"-raft-election-timer",
			"run-dir", short+"-run-dir",
			"db-location", short+"-db-location",
			"server-privkey", short+"-server-privkey",
			"server-cert", short+"-server-cert",
			"server-cacert", short+"-server-cacert")
	}

	return append(list, unusedGateway()...)
}

// unusedGateway returns the part of the table from the section [gateway] on, in two functions
// because of their length.
func unusedGateway() []setting.UnusedName {
	var list unusedNames

	list.add("gateway", noFeature, false, "egw-interface", "exgw-interface")
	list.add("gateway", noOffload, false,
		"gateway-accelerated-interface", "gateway-accelerated-interface",
		"router-subnet", "gateway-router-subnet")
	list.add("gateway", "the networks are always 169.254.169.0/29 and fd69::/125", false,
		"v4-masquerade-subnet", "gateway-v4-masquerade-subnet",
		"v6-masquerade-subnet", "gateway-v6-masquerade-subnet")
	list.add("gateway", noFeature, true,
		"disable-snat-multiple-gws", "disable-snat-multiple-gws",
		"allow-no-uplink", "allow-no-uplink")
	list.add("gateway", notNeeded, true,
		"disable-pkt-mtu-check", "disable-pkt-mtu-check",
		"disable-forwarding", "disable-forwarding",
		"single-node", "single-node")
	list.add("masterha", "ovn-ebpf derives it from election-lease-duration", false,
		"election-renew-deadline", "ha-election-renew-deadline",
		"election-retry-period", "ha-election-retry-period")
	list.add("clustermgrha", "ovn-ebpf has one kind of controller, with its settings in [masterha]", false,
		"election-lease-duration", "cluster-manager-ha-election-lease-duration",
		"election-renew-deadline", "cluster-manager-ha-election-renew-deadline",
		"election-retry-period", "cluster-manager-ha-election-retry-period")
	list.add("clustermanager", noZones, false,
		"v4-transit-subnet", "cluster-manager-v4-transit-subnet",
		"v6-transit-subnet", "cluster-manager-v6-transit-subnet")
	list.add("hybridoverlay", noFeature, true, "enabled", "enable-hybrid-overlay")
	list.add("hybridoverlay", noFeature, false,
		"cluster-subnets", "hybrid-overlay-cluster-subnets",
		"hybrid-overlay-vxlan-port", "hybrid-overlay-vxlan-port")
	list.add("ovnkubenode", noOffload, false,
		"mode", "ovnkube-node-mode",
		"mgmt-port-netdev", "ovnkube-node-mgmt-port-netdev",
		"mgmt-port-dp-resource-name", "ovnkube-node-mgmt-port-dp-resource-name")
	list.add("ovnkubenode", notNeeded, true, "disable-ovn-iface-id-ver", "disable-ovn-iface-id-ver")

	features := []string{
		"enable-admin-network-policy", "enable-egress-ip", "enable-egress-firewall", "enable-egress-qos",
		"enable-egress-service", "enable-multi-network", "enable-multi-networkpolicy",
		"enable-network-segmentation", "enable-preconfigured-udn-addresses", "enable-route-advertisements",
		"enable-stateless-netpol", "enable-interconnect", "enable-multi-external-gateway",
		"enable-persistent-ips", "enable-dns-name-resolver", "enable-svc-template-support",
		"enable-observability", "enable-network-qos",
	}
	for _, name := range features {
		list.add("ovnkubernetesfeature", noFeature, true, name, name)
	}

	list.add("ovnkubernetesfeature", noFeature, false,
		"egressip-reachability-total-timeout", "egressip-reachability-total-timeout",
		"egressip-node-healthcheck-port", "egressip-node-healthcheck-port",
		"advertised-udn-isolation-mode", "advertised-udn-isolation-mode")

	return append(list,
		setting.UnusedName{Flag: "pod-ip", Why: notNeeded},
		setting.UnusedName{Flag: "unprivileged-mode", Bool: true, Why: noFeature},
		setting.UnusedName{Flag: "enable-multicast", Bool: true, Why: noFeature})
}
