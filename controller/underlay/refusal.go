package underlay

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/controller/openstack"
)

// Errors of OpenStack become problems of the pool, which have a reason and a remedy for the
// operator. A quota and a refusal are problems at once. Other errors may pass by themselves, so
// they are problems only if requests have failed for some time. Package openstack has the kinds and
// types of errors.

// lastsAfter is the time after which an error that may pass by itself is a problem.
const lastsAfter = 10 * time.Second

// failure is the state of a pool whose last requests to OpenStack failed.
type failure struct {
	err   *openstack.Error // the last error
	in    error            // err with the step that failed
	since time.Time        // when the first request in a row failed
	now   time.Time        // when the last request failed
}

// problem returns the failure as a problem of a node's pool, with its remedy. It returns nil
// while the failure may pass by itself.
func (f failure) problem(node string) *cloud.Problem {
	since := f.since.UTC().Format(time.RFC3339)
	problem := func(reason cloud.Reason, remedy string) *cloud.Problem {
		text := fmt.Sprintf("pool of node %s: %v: %s", node, f.in, remedy)
		return &cloud.Problem{Reason: reason, Text: text}
	}

	switch e := f.err; {
	case f.mayPass():
		return nil
	case e.Type == openstack.TypeSubnetAllocation:
		return problem(cloud.SubnetPoolEmpty, "the subnet pool of the pods has no prefix left: add one "+
			"(openstack subnet pool set --pool-prefix PREFIX POOL), or delete subnets that are not used")
	case e.Kind == openstack.Quota:
		return problem(cloud.QuotaExceeded, "raise the project's quota")
	case e.Status == http.StatusUnauthorized:
		return problem(cloud.CredentialsRefused, "the credentials may be expired or deleted: write "+
			"valid ones to clouds.yaml, and restart the controller")
	case e.Status == http.StatusForbidden:
		return problem(cloud.RequestForbidden, forbiddenRemedy(e.Call))
	case trunkRemedies[e.Type] != "":
		return problem(cloud.TrunkRefused, trunkRemedies[e.Type])
	case e.Type == openstack.TypeSubportMTU:
		return problem(cloud.MTUTooSmall,
			"the network of the VMs has a smaller MTU than that of the pods: raise it")
	case e.Kind == openstack.Refused:
		return problem(cloud.RequestRefused,
			"check the settings of section [openstack], and the log of Neutron")
	case e.Kind == openstack.Conflict || e.Kind == openstack.Gone:
		return &cloud.Problem{Reason: cloud.RequestRefused, Text: fmt.Sprintf(
			"pool of node %s: Neutron refuses the request since %s: %v: look whether another program "+
				"changes the pool's objects", node, since, f.in)}
	}

	return &cloud.Problem{Reason: cloud.CloudAway, Text: fmt.Sprintf(
		"pool of node %s: OpenStack is away since %s: the node keeps its ports, and nothing is made or "+
			"repaired: check Keystone and Neutron", node, since)}
}

// mayPass reports whether another observation, or some time, may end the failure. Neutron also
// answers ParentPortInUse if the port already has a trunk, which the next observation finds.
func (f failure) mayPass() bool {
	switch f.err.Kind {
	case openstack.Quota:
		return false
	case openstack.Refused:
		return f.err.Type == openstack.TypeParentPortInUse && f.now.Equal(f.since)
	default:
		return f.now.Sub(f.since) < lastsAfter
	}
}

// trunkRemedies has the remedies for refusals of trunks, by the type of Neutron's error.
var trunkRemedies = map[string]string{
	openstack.TypeParentPortInUse: trunkBeforeBoot,
	openstack.TypeTrunkInUse:      trunkBeforeBoot,
	openstack.TypeTrunkDisabled:   "enable the trunk (openstack network trunk set --enable TRUNK)",
	openstack.TypeTrunkInError: "look at the trunk (openstack network trunk show TRUNK) and at the log of Neutron; " +
		"if you delete the trunk, the controller makes it again",
}

// trunkBeforeBoot is the remedy for releases of Neutron that refuse to change the trunk of a
// running VM.
const trunkBeforeBoot = "this release of Neutron changes no trunk on the port of a running VM: make the trunk before " +
	"the VM boots (Cluster API: trunk: true), or update Neutron to 23.3, 24.0.1, 25.0 or later"

// forbiddenRemedy returns the remedy for a request that the cloud's policy forbids. call is that of
// openstack.Error, such as "create subnet".
func forbiddenRemedy(call string) string {
	const ask = "ask the cloud's operator to allow this request to members of the project"

	switch {
	case strings.Contains(call, "trunk") || strings.Contains(call, "subport"):
		return ask + "; underlay mode needs trunks"
	case strings.Contains(call, "subnet"):
		return ask + ", or for a subnet pool that is shared with the project (--subnet-pool)"
	}

	return ask
}
