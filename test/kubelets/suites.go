package kubelets

// Suite is a part of upstream's tests.
type Suite struct {
	Name  string
	Focus string    // what names of specs match, a regular expression
	Skip  []LeftOut // of these
	Least int       // fewer specs than that are not the suite
	// AvoidNullNAT: the agents have this flag, for ovs-vswitchd would abort all the time.
	AvoidNullNAT bool
}

// LeftOut is what a suite does not run.
type LeftOut struct {
	Match  string // a regular expression
	Reason string
}

// Suites are those that a cluster of ours must pass.
func Suites() []Suite {
	conformance := LeftOut{`\[Conformance\]`, "the suite conformance has them"}
	sctp := LeftOut{`Feature:SCTPConnectivity`, "the lab's kernel has no SCTP"}
	return []Suite{
		{Name: "conformance", Focus: `\[sig-network\].*\[Conformance\]`, Least: 47},
		{Name: "networkpolicy", Focus: `\[sig-network\] Netpol`, Skip: []LeftOut{sctp}, Least: 47},
		{
			Name: "services", Focus: `\[sig-network\] (Services|Service CIDRs|Conntrack|Traffic Distribution|Connectivity .*using Services)`, Least: 45, AvoidNullNAT: true,
			Skip: []LeftOut{
				conformance,
				{`\[Disruptive\]`, "they restart kube-proxy, which there is none of, and the API server, by ssh"},
				{
					`HealthCheckNodePort correctly when ExternalTrafficPolicy changes`,
					"its client is a socket bound to the node's address, to which pods of other nodes do not find back (docs/services.md)",
				},
				{`Traffic Distribution .*(on multiple nodes|fall back to same zone)`, "they want six nodes in three zones, and skip themselves on three"},
			},
		},
		{
			Name: "granular", Focus: `\[sig-network\].*Granular Checks: Services`, Least: 26, AvoidNullNAT: true, Skip: []LeftOut{
				sctp,
				{
					`large requests: udp$`,
					"fragments to a load balancer do not pass OVS's userspace datapath: its connection tracker leaves them as they are, " +
						"and a later one has no port to find the load balancer by (upstream's spec of the secondary family overlooks it)",
				},
				{`service endpoints using hostNetwork$`, "every step passes but the last, which is the same as in large requests: udp"},
			},
		},
	}
}
