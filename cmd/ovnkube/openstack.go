package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/controller/underlay"
)

// openstackFlags are the settings of the OpenStack project whose network pods use in underlay mode.
type openstackFlags struct {
	cloud, cloudsFile        string
	clusterName              string
	router                   string // UUID
	subnetPool, subnetPool6  string // UUIDs
	groups                   uuids  // security groups
	requestRate, workerCount int
	maxPorts                 int // per node; 0: no limit
	releaseAfter             time.Duration
}

// openstackSection is the section of these settings in ovn_k8s.conf.
const openstackSection = "openstack"

func newOpenstackFlags() openstackFlags {
	return openstackFlags{
		clusterName: "kubernetes", requestRate: 4, workerCount: 2, releaseAfter: 15 * time.Minute,
	}
}

func (o *openstackFlags) settings() []*setting.Setting {
	return []*setting.Setting{
		{
			Flag:    "cloud",
			Section: openstackSection,
			Key:     "cloud",
			Value:   setting.Text(&o.cloud),
			About:   []string{"open cloud"},
			Usage: "in underlay mode, the `name` of the entry of clouds.yaml with the credentials of the " +
				"OpenStack project. Required",
		},
		{
			Flag:    "clouds-file",
			Section: openstackSection,
			Key:     "clouds-file",
			Value:   setting.Text(&o.cloudsFile, optional(checkAbsolute)),
			About:   []string{"open cloud"},
			Usage: "in underlay mode, the `path` of clouds.yaml; default: found in the working directory, " +
				"~/.config/openstack or /etc/openstack",
		},
		{
			Flag:    "cluster-name",
			Section: openstackSection,
			Key:     "cluster-name",
			Value:   setting.Text(&o.clusterName, checkClusterName),
			Usage: "in underlay mode, the `name` of this cluster in Neutron. The names of the cluster's " +
				"networks, trunks and ports begin with it. Clusters in the same project need different names",
		},
		{
			Flag: "router-id", Section: openstackSection, Key: "router-id",
			Value: setting.Text(&o.router, optional(annotation.CheckUUID)),
			Usage: "in underlay mode, the `UUID` of the Neutron router that connects the networks of " +
				"pods. Required",
		},
		{
			Flag: "subnet-pool", Section: openstackSection, Key: "subnet-pool",
			Value: setting.Text(&o.subnetPool, optional(annotation.CheckUUID)),
			Usage: "in underlay mode, the `UUID` of the Neutron subnet pool with the IPv4 addresses of " +
				"pods. Required",
		},
		{
			Flag:    "subnet-pool-6",
			Section: openstackSection,
			Key:     "subnet-pool-6",
			Value:   setting.Text(&o.subnetPool6, optional(annotation.CheckUUID)),
			Usage: "in underlay mode, the `UUID` of the Neutron subnet pool with the IPv6 addresses of " +
				"pods; default: none, pods have only IPv4 addresses",
		},
		{
			Flag:    "security-groups",
			Section: openstackSection,
			Key:     "security-groups",
			Value:   &o.groups,
			Usage: "in underlay mode, the `UUIDs` of the Neutron security groups of pods, separated by " +
				"commas. Required",
		},
		{
			Flag: "request-rate", Section: openstackSection, Key: "request-rate",
			Value: setting.Number(&o.requestRate, 1, 1000),
			Usage: "in underlay mode, the maximum number of `requests` per second to OpenStack",
		},
		{
			Flag: "workers", Section: openstackSection, Key: "workers",
			Value: setting.Number(&o.workerCount, 1, 64),
			Usage: "in underlay mode, the `number` of nodes that the controller serves at the same time. " +
				"The controller also has at most this number of pending requests to OpenStack",
		},
		{
			Flag:    "max-ports",
			Section: openstackSection,
			Key:     "max-ports",
			Value:   setting.Number(&o.maxPorts, 0, 4093),
			Usage: "in underlay mode, the maximum `number` of ports for the pods of a node (0: the number " +
				"of VLAN tags of the node)",
		},
		{
			Flag:    "release-after",
			Section: openstackSection,
			Key:     "release-after",
			Value:   setting.Seconds(&o.releaseAfter),
			Usage: "in underlay mode, the `seconds` from the deletion of a Node to the deletion of its " +
				"ports in Neutron. If the Node's VM no longer exists, its ports are deleted at once",
		},
	}
}

// underlayConfig returns the configuration of the controller in underlay mode.
func (c *controllerFlags) underlayConfig(cluster *clusterFlags) (underlay.Config, error) {
	if err := c.openstack.checkRequired(); err != nil {
		return underlay.Config{}, err
	}

	if !c.leaderElect {
		return underlay.Config{}, errors.New("--leader-elect is false: the controller of underlay mode needs the election, " +
			"because nothing else prevents two controllers from making ports for the same node")
	}

	rest, err := cluster.api.restConfig()
	if err != nil {
		return underlay.Config{}, err
	}

	identity, err := election.Identity(c.identity)
	if err != nil {
		return underlay.Config{}, err
	}

	o := &c.openstack
	config := underlay.Config{
		RestConfig:   rest,
		Cloud:        o.cloud,
		CloudsFile:   o.cloudsFile,
		Cluster:      o.clusterName,
		Router:       o.router,
		SubnetPool:   o.subnetPool,
		SubnetPool6:  o.subnetPool6,
		Groups:       o.groups,
		RequestRate:  float64(o.requestRate),
		Workers:      o.workerCount,
		MaxPorts:     o.maxPorts,
		ReleaseAfter: o.releaseAfter,
		Election:     election.Config{Identity: identity, Namespace: c.leaseNamespace, Lease: c.lease},
		MetricsAddr:  cluster.metricsAddress,
		MetricsTLS:   cluster.metricsTLS,
	}

	return config, config.Validate()
}

// checkRequired returns an error for each setting without a default that is not set.
func (o *openstackFlags) checkRequired() error {
	var errs []error

	for _, s := range []struct {
		flag, meaning string
		isSet         bool
	}{
		{"cloud", "the name of an entry of clouds.yaml", o.cloud != ""},
		{"router-id", "the UUID of a Neutron router", o.router != ""},
		{"subnet-pool", "the UUID of a Neutron subnet pool", o.subnetPool != ""},
		{"security-groups", "the UUIDs of Neutron security groups", len(o.groups) > 0},
	} {
		if !s.isSet {
			errs = append(errs, fmt.Errorf("--%s is not set: underlay mode needs %s", s.flag, s.meaning))
		}
	}

	return errors.Join(errs...)
}

// uuids is a sorted, comma-separated list of UUIDs without duplicates; "" is an empty list.
type uuids []string

func (u *uuids) String() string { return strings.Join(*u, ",") }

func (u *uuids) Set(s string) error {
	if s == "" {
		*u = nil
		return nil
	}

	var list uuids

	err := setList(&list, s, func(part string) (string, error) { return part, annotation.CheckUUID(part) })
	if err != nil {
		return err
	}

	slices.Sort(list)
	*u = slices.Compact(list)

	return nil
}

// nameForm is the form of a cluster's name. Neutron allows any 255 characters in a name. A name in
// this form needs no quotes anywhere, and leaves room for the name of a node and an address.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

func checkClusterName(s string) error {
	if !nameForm.MatchString(s) {
		return fmt.Errorf("%q is not 1 to 63 letters, digits, '-', '_' and '.', "+
			"with a letter or digit at both ends", s)
	}

	return nil
}
