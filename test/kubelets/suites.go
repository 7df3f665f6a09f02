package kubelets

// Suite is a part of upstream's tests.
type Suite struct {
	Name  string
	Focus string    // regular expression of spec names
	Skip  []LeftOut // specs to exclude
	Least int       // minimum number of specs
}

// LeftOut excludes specs of a suite.
type LeftOut struct {
	Match  string // a regular expression
	Reason string
}

// Suites returns the suites that the cluster must pass.
func Suites() []Suite {
	conformance := LeftOut{`\[Conformance\]`, "the suite conformance has them"}
	sctp := LeftOut{`Feature:SCTPConnectivity`, "the lab's kernel has no SCTP"}

	return []Suite{
		{Name: "conformance", Focus: `\[sig-network\].*\[Conformance\]`, Least: 47},
		{Name: "networkpolicy", Focus: `\[sig-network\] Netpol`, Skip: []LeftOut{sctp}, Least: 47},
		{
			Name: "services", Focus: `\[sig-network\] (Services|Service CIDRs|Conntrack|Traffic Distribution|Connectivity .*using Services)`, Least: 45,
			Skip: []LeftOut{
				conformance,
				{`\[Disruptive\]`, "they restart kube-proxy, which does not exist here, and the API server, by ssh"},
				{
					`HealthCheckNodePort correctly when ExternalTrafficPolicy changes`,
					"its client is a socket bound to the node's address, to which replies from pods of other nodes cannot return (docs/services.md)",
				},
				{`Traffic Distribution .*(on multiple nodes|fall back to same zone)`, "they need six nodes in three zones, and skip themselves with three nodes"},
			},
		},
		{
			Name: "granular", Focus: `\[sig-network\].*Granular Checks: Services`, Least: 26, Skip: []LeftOut{
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
