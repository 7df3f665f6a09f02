package plan

import (
	"cmp"
	"slices"
	"strconv"
)

// Row is one row of the Northbound database. The concrete types are plain structs, one per table.
// Their field tags name the columns:
//
//	ovsdb:"column"          a column of this row
//	ref:"Table"             with ovsdb: the column refers to rows of Table, by name
//	parent:"Table.column"   the names of rows of Table whose column refers to this row
//
// Field types are string, int, bool, []string and map[string]string; the zero value is the column's
// empty value. ID identifies the row among those of its table and owner: a row is never changed
// into one with another ID.
type Row interface {
	Table() string
	ID() string
}

// LogicalRouter is a row of Logical_Router.
type LogicalRouter struct {
	Name               string            `ovsdb:"name"`
	Options            map[string]string `ovsdb:"options"`
	LoadBalancerGroups []string          `ovsdb:"load_balancer_group" ref:"Load_Balancer_Group"`
	ExternalIDs        map[string]string `ovsdb:"external_ids"`
}

// LogicalRouterPort is a row of Logical_Router_Port.
type LogicalRouterPort struct {
	Router   string            `parent:"Logical_Router.ports"`
	Name     string            `ovsdb:"name"`
	MAC      string            `ovsdb:"mac"`
	Networks []string          `ovsdb:"networks"`
	Options  map[string]string `ovsdb:"options"`
}

// GatewayChassis is a row of Gateway_Chassis: the chassis to which a router port belongs.
type GatewayChassis struct {
	Port     string `parent:"Logical_Router_Port.gateway_chassis"`
	Name     string `ovsdb:"name"`
	Chassis  string `ovsdb:"chassis_name"`
	Priority int    `ovsdb:"priority"`
}

// LogicalSwitch is a row of Logical_Switch.
type LogicalSwitch struct {
	Name               string            `ovsdb:"name"`
	OtherConfig        map[string]string `ovsdb:"other_config"`
	LoadBalancerGroups []string          `ovsdb:"load_balancer_group" ref:"Load_Balancer_Group"`
}

// LogicalSwitchPort is a row of Logical_Switch_Port. Incarnation, if set, distinguishes a pod's
// port from that of an earlier pod with the same name.
type LogicalSwitchPort struct {
	Switch       string            `parent:"Logical_Switch.ports"`
	Groups       []string          `parent:"Port_Group.ports"`
	Access       Access            // those of Groups that only allow traffic
	Name         string            `ovsdb:"name"`
	Type         string            `ovsdb:"type"`
	Addresses    []string          `ovsdb:"addresses"`
	PortSecurity []string          `ovsdb:"port_security"`
	Options      map[string]string `ovsdb:"options"`
	Tag          int               `ovsdb:"tag"`
	ExternalIDs  map[string]string `ovsdb:"external_ids"`
	Incarnation  string
}

// Access has the names of port groups that only allow traffic, so a port may join them later. Each
// has the namespaces of the policies that use it, sorted.
type Access map[string][]string

// StaticRoute is a row of Logical_Router_Static_Route.
type StaticRoute struct {
	Router     string `parent:"Logical_Router.static_routes"`
	Prefix     string `ovsdb:"ip_prefix"`
	NextHop    string `ovsdb:"nexthop"`
	OutputPort string `ovsdb:"output_port"`
	Policy     string `ovsdb:"policy"`
	RouteTable string `ovsdb:"route_table"`
	BFD        string `ovsdb:"bfd" ref:"BFD"` // the ID of a BFD row of the same owner
}

// RouterPolicy is a row of Logical_Router_Policy.
type RouterPolicy struct {
	Router   string   `parent:"Logical_Router.policies"`
	Priority int      `ovsdb:"priority"`
	Match    string   `ovsdb:"match"`
	Action   string   `ovsdb:"action"`
	NextHops []string `ovsdb:"nexthops"`
}

// AddressSet is a row of Address_Set.
type AddressSet struct {
	Name      string   `ovsdb:"name"`
	Addresses []string `ovsdb:"addresses"`
}

// NAT is a row of NAT.
type NAT struct {
	Router            string `parent:"Logical_Router.nat"`
	Type              string `ovsdb:"type"`
	ExternalIP        string `ovsdb:"external_ip"`
	LogicalIP         string `ovsdb:"logical_ip"`
	ExternalPortRange string `ovsdb:"external_port_range"`
}

// BFD is a row of BFD.
type BFD struct {
	Port        string `ovsdb:"logical_port"`
	Destination string `ovsdb:"dst_ip"`
}

// StaticMACBinding is a row of Static_MAC_Binding. The table has no external_ids: the owner of the
// port owns the row.
type StaticMACBinding struct {
	Port     string `ovsdb:"logical_port"`
	IP       string `ovsdb:"ip"`
	MAC      string `ovsdb:"mac"`
	Override bool   `ovsdb:"override_dynamic_mac"`
}

// LoadBalancer is a row of Load_Balancer. The named switches and routers serve it, and all members
// of the groups.
type LoadBalancer struct {
	Groups      []string          `parent:"Load_Balancer_Group.load_balancer"`
	Switches    []string          `parent:"Logical_Switch.load_balancer"`
	Routers     []string          `parent:"Logical_Router.load_balancer"`
	Name        string            `ovsdb:"name"`
	Protocol    string            `ovsdb:"protocol"`
	VIPs        map[string]string `ovsdb:"vips"`
	Options     map[string]string `ovsdb:"options"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// LoadBalancerGroup is a row of Load_Balancer_Group. The table has no external_ids: the owner
// follows from the name.
type LoadBalancerGroup struct {
	Name string `ovsdb:"name"`
}

// Table returns the row's table, as in the schema.
func (LogicalRouter) Table() string { return "Logical_Router" }

// Table returns the row's table, as in the schema.
func (LogicalRouterPort) Table() string { return "Logical_Router_Port" }

// Table returns the row's table, as in the schema.
func (GatewayChassis) Table() string { return "Gateway_Chassis" }

// Table returns the row's table, as in the schema.
func (LogicalSwitch) Table() string { return "Logical_Switch" }

// Table returns the row's table, as in the schema.
func (LogicalSwitchPort) Table() string { return "Logical_Switch_Port" }

// Table returns the row's table, as in the schema.
func (StaticRoute) Table() string { return "Logical_Router_Static_Route" }

// Table returns the row's table, as in the schema.
func (RouterPolicy) Table() string { return "Logical_Router_Policy" }

// Table returns the row's table, as in the schema.
func (AddressSet) Table() string { return "Address_Set" }

// Table returns the row's table, as in the schema.
func (NAT) Table() string { return "NAT" }

// Table returns the row's table, as in the schema.
func (BFD) Table() string { return "BFD" }

// Table returns the row's table, as in the schema.
func (StaticMACBinding) Table() string { return "Static_MAC_Binding" }

// Table returns the row's table, as in the schema.
func (LoadBalancer) Table() string { return "Load_Balancer" }

// Table returns the row's table, as in the schema.
func (LoadBalancerGroup) Table() string { return "Load_Balancer_Group" }

// ID returns the name.
func (r LogicalRouter) ID() string { return r.Name }

// ID returns the name.
func (r LogicalRouterPort) ID() string { return r.Name }

// ID returns the name.
func (r GatewayChassis) ID() string { return r.Name }

// ID returns the name.
func (r LogicalSwitch) ID() string { return r.Name }

// ID returns the name, with the incarnation if there is one.
func (r LogicalSwitchPort) ID() string {
	if r.Incarnation != "" {
		return r.Name + " " + r.Incarnation
	}

	return r.Name
}

// ID names router, policy, prefix and next hop.
func (r StaticRoute) ID() string {
	return r.Router + " " + cmp.Or(r.Policy, "dst-ip") + " " + r.Prefix + " " + r.NextHop
}

// ID names router, priority and match.
func (r RouterPolicy) ID() string {
	return r.Router + " " + strconv.Itoa(r.Priority) + " " + r.Match
}

// ID returns the name.
func (r AddressSet) ID() string { return r.Name }

// ID names router, type and logical address.
func (r NAT) ID() string { return r.Router + " " + r.Type + " " + r.LogicalIP }

// ID names port and destination.
func (r BFD) ID() string { return r.Port + " " + r.Destination }

// ID names port and address.
func (r StaticMACBinding) ID() string { return r.Port + " " + r.IP }

// ID returns the name.
func (r LoadBalancer) ID() string { return r.Name }

// ID returns the name.
func (r LoadBalancerGroup) ID() string { return r.Name }

func sortRows(rows []Row) []Row {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Table(), b.Table()), cmp.Compare(a.ID(), b.ID()))
	})

	return rows
}

// Size returns the number of bytes in those columns that grow with an object: matches, VIPs and
// backends.
func Size(rows []Row) int {
	n := 0

	for _, r := range rows {
		switch r := r.(type) {
		case ACL:
			n += len(r.Match)
		case LoadBalancer:
			for v, b := range r.VIPs {
				n += len(v) + len(b)
			}
		}
	}

	return n
}

// Types returns a zero row of every type.
func Types() []Row {
	return []Row{
		LogicalRouter{},
		LogicalRouterPort{},
		GatewayChassis{},
		LogicalSwitch{},
		LogicalSwitchPort{},
		StaticRoute{},
		RouterPolicy{},
		AddressSet{},
		NAT{},
		BFD{},
		StaticMACBinding{},
		LoadBalancer{},
		LoadBalancerGroup{},
		PortGroup{},
		ACL{},
		Meter{},
		MeterBand{},
	}
}
