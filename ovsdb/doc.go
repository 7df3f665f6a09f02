// Package ovsdb holds the schemas that this project is written against, and generates the Go
// models of the tables it uses from them: packages nb and vswitch.
//
// The schemas are those of the oldest supported versions: OVN 23.03 and OVS 3.1 (Debian 12).
// That of the Southbound database is for tests alone, which run northd. Run "make generate" after a
// change of a schema, or of the tables below.
package ovsdb

//go:generate go run ./tables -extended -o nb schema/ovn-nb.ovsschema ACL Address_Set BFD Load_Balancer Load_Balancer_Group Logical_Router Logical_Router_Policy Logical_Router_Port Logical_Router_Static_Route Logical_Switch Logical_Switch_Port Meter Meter_Band NAT Port_Group Static_MAC_Binding
//go:generate go run ./tables -o vswitch schema/vswitch.ovsschema Bridge Datapath Interface Open_vSwitch Port QoS
