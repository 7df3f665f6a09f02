package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Config is the agent's configuration. The command ovnkube agent fills it from its flags, which
// docs/configuration.md explains.
type Config struct {
	NodeName   string       // of the Node in the API server
	RestConfig *rest.Config // of the API server

	// Settings configure the gateway. Run completes them: an empty Uplink becomes the interface of
	// the default route (in layout bridged possibly the bridge), and an empty Datapath is detected.
	// Bridge, Encap, NotHost and NoEBPF are not configured.
	gateway.Settings

	OVSDB     string // address of ovsdb-server, such as unix:/run/openvswitch/db.sock
	OVNRunDir string // directory of ovn-controller's pid file and control socket
	SBAddress string // of the Southbound database, for ovn-remote; "": leave ovn-remote unchanged
	// Databases are the addresses of OVN's databases, at which the gateway serves no Service.
	Databases []string
	// ChassisOfNode names the chassis after the Node, whatever system-id is set.
	ChassisOfNode bool
	// Hosts decides which addresses Nodes may claim for their hosts.
	Hosts annotation.Trust
	// CertificateFile has the node's certificate for the Southbound database, with its key. The
	// agent only checks it. If its directory does not exist, others give ovn-controller its
	// certificate.
	CertificateFile string
	EncapIP         netip.Addr // of the tunnels; zero: the node's address
	EncapBits       int        // prefix length of EncapIP on the userspace datapath; 0: 24 or 64 by its family

	CNISocket    string       // at which the agent listens for the CNI plugin
	CNIConfDir   string       // directory of CNI configurations; "": none is written
	CNIExclusive bool         // set aside the configurations of other networks in CNIConfDir
	MetricsAddr  string       // host:port of /metrics, /readyz and the status page; "": not served
	MetricsTLS   endpoint.TLS // of MetricsAddr
	CountPods    int          // maximum number of pods with packet counters
	ShadowRate   int          // maximum number of decisions per second to compare with the model; 0: none
	AvoidNullNAT bool         // for the userspace datapath of OVS before 3.3: see ovs.AvoidNullNAT
	HealthAddr   string       // host:port of kube-proxy's health check; "": not served

	// Begun, if not nil, is called once Run has checked the configuration. missing returns what the
	// node still needs to become ready, or "".
	Begun func(missing func() string) `json:"-"`
}

// minSNATPort is the first port that needs no privilege to bind.
const minSNATPort = 1024

// Validate returns all mistakes joined. Each names its field.
func (c Config) Validate() error {
	var errs []error

	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.NodeName == "" {
		bad("node name: empty")
	}

	if c.RestConfig == nil {
		bad("kubeconfig: none given")
	}

	if !strings.HasPrefix(c.OVSDB, "unix:") && !strings.HasPrefix(c.OVSDB, "tcp:") {
		bad("OVSDB address %q: want unix:<path> or tcp:<ip>:<port>", c.OVSDB)
	}

	switch c.Datapath {
	case "", ovs.DatapathSystem, ovs.DatapathNetdev:
	default:
		bad("datapath %q: want system or netdev", c.Datapath)
	}

	if len(c.PodCIDRs) == 0 {
		bad("cluster subnets: none given")
	}

	if !c.SNATPorts.IsValid() {
		bad("SNAT port range %s: empty", c.SNATPorts)
	} else if c.SNATPorts.First < minSNATPort {
		bad("SNAT port range %s: ports below %d are the host's", c.SNATPorts, minSNATPort)
	}

	if !c.NodePortRange.IsValid() {
		bad("NodePort range %s: empty", c.NodePortRange)
	} else if c.SNATPorts.Overlaps(c.NodePortRange) {
		bad("SNAT port range %s: overlaps the NodePort range %s", c.SNATPorts, c.NodePortRange)
	}

	if c.MTU != 0 {
		has6 := slices.ContainsFunc(c.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() })
		errs = append(errs, annotation.CheckPodMTU(c.MTU, has6))
	}

	paths := []struct{ name, path string }{
		{"pin directory", c.PinDir},
		{"run directory", c.RunDir},
		{"OVS run directory", c.OVSRunDir},
		{"OVN run directory", c.OVNRunDir},
		{"CNI socket", c.CNISocket},
	}
	for _, d := range paths {
		if !filepath.IsAbs(d.path) {
			bad("%s %q: not an absolute path", d.name, d.path)
		}
	}

	errs = append(errs, c.validateAddresses(), c.validateGateway())

	return errors.Join(append(errs, overlaps(c.PodCIDRs, c.ServiceCIDRs)...)...)
}

// validateAddresses checks the addresses of daemons and listeners.
func (c Config) validateAddresses() error {
	var errs []error

	if c.SBAddress != "" {
		for e := range strings.SplitSeq(c.SBAddress, ",") {
			errs = append(errs, checkDatabase(e))
		}
	}

	if c.EncapIP.IsValid() && !c.EncapIP.IsGlobalUnicast() {
		errs = append(errs,
			fmt.Errorf("encap address %s: want an address that other nodes can reach", c.EncapIP))
	}

	if c.MetricsAddr != "" {
		if _, _, err := net.SplitHostPort(c.MetricsAddr); err != nil {
			errs = append(errs, fmt.Errorf("metrics address: %w", err))
		}
	}

	errs = append(errs, c.MetricsTLS.Validate())

	if c.HealthAddr != "" {
		if _, _, err := net.SplitHostPort(c.HealthAddr); err != nil {
			errs = append(errs, fmt.Errorf("health check address: %w", err))
		}
	}

	return errors.Join(errs...)
}

// validateGateway checks the gateway's settings.
func (c Config) validateGateway() error {
	if c.Layout == verdict.Dedicated && c.Uplink == "" {
		return errors.New("gateway interface: layout dedicated wants one: the interface of the default route belongs to the host")
	}

	if c.Layout == verdict.Dedicated && c.Local {
		return errors.New("local gateway mode: not in layout dedicated, as pod traffic leaves through the host")
	}

	return c.Settings.Validate()
}

// checkDatabase checks an address for ovn-controller.
func checkDatabase(address string) error {
	kind, rest, _ := strings.Cut(address, ":")

	_, _, err := net.SplitHostPort(rest)
	if kind == "unix" && rest != "" || (kind == "tcp" || kind == "ssl") && err == nil {
		return nil
	}

	return fmt.Errorf("southbound database address %q: want unix:<path>, tcp:<ip>:<port> or ssl:<ip>:<port>",
		address)
}

// overlaps returns an error for each pair of overlapping networks.
func overlaps(podCIDRs, serviceCIDRs []netip.Prefix) []error {
	type network struct {
		what   string
		prefix netip.Prefix
	}

	var all []network
	for _, p := range podCIDRs {
		all = append(all, network{"cluster subnet", p})
	}

	for _, p := range serviceCIDRs {
		all = append(all, network{"service CIDR", p})
	}

	var errs []error

	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.prefix.Overlaps(b.prefix) {
				errs = append(errs, fmt.Errorf("%s %s overlaps %s %s", a.what, a.prefix, b.what, b.prefix))
			}
		}
	}

	return errs
}

// encapPrefix returns EncapIP with its prefix length on the gateway bridge: EncapBits, or that of a
// usual network, /24 or /64.
func (c Config) encapPrefix() netip.Prefix {
	bits := c.EncapBits
	switch {
	case bits != 0:
	case c.EncapIP.Is4():
		bits = 24
	default:
		bits = 64
	}

	return netip.PrefixFrom(c.EncapIP, bits)
}
