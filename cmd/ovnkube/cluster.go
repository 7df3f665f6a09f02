package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
)

// clusterFlags are those that every role has: how to reach the cluster, what
// it looks like, and how to log. Where the second generation spells a flag in
// another way, both are declared and mean the same.
type clusterFlags struct {
	kubeconfig, apiServer, token, caFile string
	nbAddress, sbAddress                 string
	nbTLS, sbTLS                         nb.TLS
	subnets                              clusterSubnets
	serviceCIDRs                         prefixes
	snatPorts                            portRange
	mtu                                  int
	bfd                                  bool
	metricsAddress                       string
	logLevel                             int
	logFile                              string
}

func declareCluster(f *flag.FlagSet, metricsAddress string) *clusterFlags {
	c := &clusterFlags{
		subnets: clusterSubnets{{mustPrefix("10.244.0.0/16"), 24}}, serviceCIDRs: prefixes{mustPrefix("10.96.0.0/16")},
		snatPorts: portRange{49152, 65535},
	}
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "`file` to reach the API server with; without any, the pod's service account")
	f.StringVar(&c.kubeconfig, "k8s-kubeconfig", "", "`file`, the same as --kubeconfig")
	f.StringVar(&c.apiServer, "k8s-apiserver", "", "`URL` of the API server, if there is no kubeconfig")
	f.StringVar(&c.token, "k8s-token", "", "bearer `token` for --k8s-apiserver")
	f.StringVar(&c.caFile, "k8s-cacert", "", "`file` with the CA certificate of --k8s-apiserver")
	f.StringVar(&c.nbAddress, "nb-address", "unix:/run/ovn/ovnnb_db.sock", "`address` of OVN's Northbound database, unix:PATH, tcp:IP:PORT or ssl:IP:PORT; several, of a raft cluster, by commas")
	f.StringVar(&c.sbAddress, "sb-address", "unix:/run/ovn/ovnsb_db.sock", "`address` of OVN's Southbound database, as above")
	declareTLS(f, &c.nbTLS, "nb", "Northbound")
	declareTLS(f, &c.sbTLS, "sb", "Southbound")
	f.Var(&c.subnets, "cluster-subnets", "pod `networks` CIDR[/HOSTLEN], by commas; HOSTLEN is the prefix length of one node's part")
	f.Var(&c.serviceCIDRs, "k8s-service-cidrs", "service `networks`, one a family, by commas")
	f.Var(&c.serviceCIDRs, "k8s-service-cidr", "`networks`, the same as --k8s-service-cidrs")
	f.Var(&c.snatPorts, "snat-port-range", "local `ports` FIRST-LAST that are OVN's on every gateway: pods leave from them, the host never picks one")
	f.IntVar(&c.mtu, "mtu", 0, "MTU of pods in `bytes`; 0: the uplink's minus the encapsulation")
	f.BoolVar(&c.bfd, "gateway-bfd", false, "watch the gateways' next hops with BFD; its packets go to the host and to OVN")
	f.StringVar(&c.metricsAddress, "metrics-bind-address", metricsAddress, "`address` for /metrics, /healthz and /readyz")
	f.IntVar(&c.logLevel, "loglevel", 4, "1 errors, 2 and 3 warnings, 4 information, 5 everything (`level`)")
	f.StringVar(&c.logFile, "logfile", "", "append the log to this `file` instead of standard error")
	return c
}

// declareTLS declares the files of ssl: addresses, named as ovn-kubernetes does.
func declareTLS(f *flag.FlagSet, files *nb.TLS, short, name string) {
	f.StringVar(&files.Key, short+"-client-privkey", "", "PEM `file` with the private key for an ssl: address of the "+name+" database")
	f.StringVar(&files.Certificate, short+"-client-cert", "", "PEM `file` with the certificate of that key")
	f.StringVar(&files.CA, short+"-client-cacert", "", "PEM `file` with the CA certificate that the "+name+" database's is signed by")
}

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// logger opens the structured log, and sends the client libraries' there too.
func (c *clusterFlags) logger(stderr io.Writer) (*slog.Logger, error) {
	level := slog.LevelInfo
	switch {
	case c.logLevel <= 1:
		level = slog.LevelError
	case c.logLevel <= 3:
		level = slog.LevelWarn
	case c.logLevel >= 5:
		level = slog.LevelDebug
	}
	if c.logFile != "" {
		file, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		stderr = file
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(log.With("component", "client-go"))
	return log, nil
}

// restConfig is how to reach the API server.
func (c *clusterFlags) restConfig() (*rest.Config, error) {
	switch {
	case c.kubeconfig != "":
		config, err := clientcmd.BuildConfigFromFlags(c.apiServer, c.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig %q: %w", c.kubeconfig, err)
		}
		return config, nil
	case c.apiServer != "":
		return &rest.Config{Host: c.apiServer, BearerToken: c.token, TLSClientConfig: rest.TLSClientConfig{CAFile: c.caFile}}, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("reach the API server: no --kubeconfig, no --k8s-apiserver, and %w", err)
	}
	return config, nil
}
