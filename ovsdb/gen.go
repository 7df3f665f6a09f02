package ovsdb

//go:generate go run ./tables -extended -o nb schema/ovn-nb.ovsschema ACL Address_Set BFD Load_Balancer Load_Balancer_Group Logical_Router Logical_Router_Policy Logical_Router_Port Logical_Router_Static_Route Logical_Switch Logical_Switch_Port Meter Meter_Band NAT Port_Group Static_MAC_Binding
//go:generate go run ./tables -o vswitch schema/vswitch.ovsschema Bridge Datapath Interface Open_vSwitch Port QoS
