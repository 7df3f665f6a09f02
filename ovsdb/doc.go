// Package ovsdb holds the schemas that this project is written against, and generates the Go
// models of the tables it uses from them: packages nb and vswitch.
//
// The schemas are those of the reference platform (docs/platforms.md): OVN 25.03 and OVS 3.5. A
// Northbound database of an older version is fitted (controller/nb). Open vSwitch's is not: the
// columns below exist since the oldest supported version, 3.1. Run "make generate" after a change
// of a schema, or of the tables below.
package ovsdb

//go:generate go run ./tables -extended -o nb schema/ovn-nb.ovsschema ACL Address_Set BFD Gateway_Chassis Load_Balancer Load_Balancer_Group Logical_Router Logical_Router_Policy Logical_Router_Port Logical_Router_Static_Route Logical_Switch Logical_Switch_Port Meter Meter_Band NAT Port_Group Static_MAC_Binding
//go:generate go run ./tables -o vswitch schema/vswitch.ovsschema Bridge Datapath=capabilities,datapath_version,external_ids Interface Open_vSwitch Port QoS
