package underlay

import (
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
	"github.com/ovn-ebpf/ovn-ebpf/metric/endpoint"
)

// Config is the controller's configuration.
type Config struct {
	RestConfig *rest.Config

	Cloud, CloudsFile string   // the entry of clouds.yaml, and the file; "": where OpenStack's clients look for it
	Cluster           string   // the cluster's name in Neutron
	Router            string   // UUID of the router between the networks of pods
	SubnetPool        string   // UUID of the subnet pool with the IPv4 addresses of pods
	SubnetPool6       string   // the same for IPv6; "": pods have IPv4 addresses only
	Groups            []string // UUIDs of the security groups of pods without a profile
	RequestRate       float64  // requests to OpenStack per second
	Workers           int      // nodes that are served at the same time
	MaxPorts          int      // per node; 0: as many as the node has VLAN tags for
	// ReleaseAfter is the time from the deletion of a Node to that of its pool, if the Node's VM
	// exists.
	ReleaseAfter time.Duration

	Election    election.Config
	MetricsAddr string // "": not served
	MetricsTLS  endpoint.TLS

	// Begun, if not nil, is called when Run starts to work. missing returns what the controller
	// still needs to become ready, or "".
	Begun func(missing func() string) `json:"-"`

	// Open connects to OpenStack, and returns the ID of the project. If its error is not of
	// package openstack, Run ends. nil: openstack.Open, by Cloud and CloudsFile.
	Open func() (client Neutron, project string, err error) `json:"-"`
}

// Intervals of Pools: see Options.
const (
	resync  = 10 * time.Minute
	retry   = 30 * time.Second
	backoff = time.Second
)

// Validate returns all errors of the configuration, joined.
func (c Config) Validate() error {
	var errs []error

	addError := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.RestConfig == nil {
		addError("no API server")
	}

	if c.Cloud == "" {
		addError("no cloud: want the name of an entry of clouds.yaml")
	}

	if c.Cluster == "" {
		addError("no cluster name")
	}

	if c.RequestRate <= 0 {
		addError("request rate %v is not positive", c.RequestRate)
	}

	if c.Workers < 1 {
		addError("%d workers, want at least 1", c.Workers)
	}

	if c.MaxPorts < 0 {
		addError("at most %d ports per node, want 0 or more", c.MaxPorts)
	}

	if c.ReleaseAfter < 0 {
		addError("release after %v is negative", c.ReleaseAfter)
	}

	if c.Election.Identity == "" || c.Election.Namespace == "" {
		addError("leader election without an identity, or without a namespace for its lease")
	}

	if c.MetricsAddr != "" {
		if _, _, err := net.SplitHostPort(c.MetricsAddr); err != nil {
			addError("metrics address: %w", err)
		}
	}

	return errors.Join(append(errs, c.validateObjects(), c.MetricsTLS.Validate())...)
}

// validateObjects checks the IDs of objects in Neutron.
func (c Config) validateObjects() error {
	var errs []error

	check := func(name, id string) {
		if err := annotation.CheckUUID(id); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}

	check("router", c.Router)
	check("subnet pool", c.SubnetPool)

	if c.SubnetPool6 != "" {
		check("IPv6 subnet pool", c.SubnetPool6)
	}

	if len(c.Groups) == 0 {
		errs = append(errs, errors.New("no security groups: a port without them gets no packets"))
	}

	for _, g := range c.Groups {
		check("security group", g)
	}

	return errors.Join(errs...)
}

// options returns the options of the client of OpenStack. A request may wait until the requests of
// all other workers were sent, so the timeout has room for that.
func (c Config) options(counts *counts) openstack.Options {
	const work = time.Minute // the time for the request itself

	wait := time.Duration(float64(c.Workers) / c.RequestRate * float64(time.Second))

	return openstack.Options{
		Cloud: c.Cloud, File: c.CloudsFile, Rate: c.RequestRate, Workers: c.Workers, Timeout: work + wait,
		Done: counts.countRequest,
	}
}

// plan returns what all pools have in common.
func (c Config) plan(project string) cloud.Config {
	return cloud.Config{
		Cluster: c.Cluster, Project: project, Router: c.Router,
		SubnetPool: c.SubnetPool, SubnetPool6: c.SubnetPool6, Groups: c.Groups,
		MaxPorts: c.MaxPorts,
	}
}
