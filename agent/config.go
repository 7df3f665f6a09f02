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
)

// Config is the agent's configuration.
type Config struct {
	NodeName   string
	RestConfig *rest.Config

	// Settings are the gateway's. Run completes them: an empty Uplink is the interface of the default
	// route, in layout bridged it may be the bridge; an empty Datapath is detected; Bridge, Encap,
	// NotHost and NoEBPF are not configured.
	gateway.Settings

	OVSDB     string     // unix:/run/openvswitch/db.sock
	OVNRunDir string     // has ovn-controller's pid file and control socket
	SBAddress string     // "": ovn-remote is left as it is
	EncapIP   netip.Addr // zero = the node's; the userspace datapath needs one of its own
	EncapBits int        // prefix length of EncapIP there; 0 = 24 or 64

	CNISocket    string
	CNIConfDir   string // "" = do not write
	CNIExclusive bool   // other networks' configurations in CNIConfDir are set aside
	MetricsAddr  string // "" = do not serve
	MetricsTLS   endpoint.TLS
	CountPods    int    // pods whose packets are shown, at most
	ShadowRate   int    // decisions per second that are compared with the model, at most; 0: none
	AvoidNullNAT bool   // on the userspace datapath of OVS before 3.3: ovs.AvoidNullNAT
	HealthAddr   string // of kube-proxy's health check; "" = do not serve

	// Begun, if it is not nil, is called when Run has begun to work. missing returns what the node
	// lacks to be ready, "" for nothing.
	Begun func(missing func() string) `json:"-"`
}

// minSNATPort is the first port that needs no privilege to bind.
const minSNATPort = 1024

// Validate returns everything that is wrong, joined, each naming its field.
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
	if c.SNATPorts.First == 0 || c.SNATPorts.Last < c.SNATPorts.First {
		bad("SNAT port range %d-%d: empty", c.SNATPorts.First, c.SNATPorts.Last)
	}
	if c.SNATPorts.First > 0 && c.SNATPorts.First < minSNATPort {
		bad("SNAT port range %d-%d: ports below %d are the host's", c.SNATPorts.First, c.SNATPorts.Last, minSNATPort)
	}
	if c.SNATPorts.First <= 32767 && c.SNATPorts.Last >= 30000 {
		bad("SNAT port range %d-%d: overlaps the NodePort range 30000-32767", c.SNATPorts.First, c.SNATPorts.Last)
	}
	if c.MTU != 0 {
		errs = append(errs, annotation.CheckPodMTU(c.MTU, slices.ContainsFunc(c.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() })))
	}
	for _, d := range []struct{ name, path string }{
		{"pin directory", c.PinDir}, {"run directory", c.RunDir}, {"OVS run directory", c.OVSRunDir}, {"OVN run directory", c.OVNRunDir}, {"CNI socket", c.CNISocket},
	} {
		if !filepath.IsAbs(d.path) {
			bad("%s %q: not an absolute path", d.name, d.path)
		}
	}
	errs = append(errs, c.validateAddresses(), c.validateGateway())
	return errors.Join(append(errs, overlaps(c.PodCIDRs, c.ServiceCIDRs)...)...)
}

func (c Config) validateAddresses() error {
	var errs []error
	if c.SBAddress != "" {
		for e := range strings.SplitSeq(c.SBAddress, ",") {
			errs = append(errs, checkDatabase(e))
		}
	}
	if c.EncapIP.IsValid() && !c.EncapIP.IsGlobalUnicast() {
		errs = append(errs, fmt.Errorf("encap address %s: want one that other nodes reach", c.EncapIP))
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

func (c Config) validateGateway() error {
	if c.Layout == gateway.Dedicated && c.Uplink == "" {
		return errors.New("gateway interface: layout dedicated wants one: the default route's is the host's")
	}
	if c.Layout == gateway.Dedicated && c.Local {
		return errors.New("local gateway mode: pods leave by the host, which layout dedicated has no part in")
	}
	return c.Settings.Validate()
}

// checkDatabase is about an address that ovn-controller will connect to.
func checkDatabase(address string) error {
	kind, rest, _ := strings.Cut(address, ":")
	_, _, err := net.SplitHostPort(rest)
	if kind == "unix" && rest != "" || (kind == "tcp" || kind == "ssl") && err == nil {
		return nil
	}
	return fmt.Errorf("southbound database address %q: want unix:<path>, tcp:<ip>:<port> or ssl:<ip>:<port>", address)
}

// overlaps names every pair of networks that have addresses in common.
func overlaps(cluster, service []netip.Prefix) []error {
	type named struct {
		what   string
		prefix netip.Prefix
	}
	var all []named
	for _, p := range cluster {
		all = append(all, named{"cluster subnet", p})
	}
	for _, p := range service {
		all = append(all, named{"service CIDR", p})
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

// encapPrefix is EncapIP with its prefix length on the gateway bridge.
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
