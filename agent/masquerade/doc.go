// Package masquerade is the host's part of local gateway mode: pod traffic leaves OVN through the
// management port, and the host routes it and translates it to its own address.
//
// The package owns exactly one nftables table, inet ovn_ebpf. It replaces the table as a whole in
// one transaction of the nft program, and touches no other table. An accept in this table does not
// override a drop in another one: the FORWARD policy of another firewall (Docker, firewalld) must
// allow the management port. Probe finds out whether it does.
package masquerade
