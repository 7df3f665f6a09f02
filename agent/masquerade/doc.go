// Package masquerade is the host's part of local gateway mode: pods leave OVN by
// the management port, and the host routes them and gives them its own address.
//
// It owns exactly one nftables table, inet ovn_ebpf, which it replaces as a
// whole in one transaction of the nft program; it never touches another. An
// accept here does not overrule a drop elsewhere: a FORWARD policy of another
// firewall (Docker's, firewalld's) must allow the management port.
package masquerade
