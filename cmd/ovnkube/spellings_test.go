package main

import (
	"slices"
	"strings"
	"testing"
)

// TestSpellings covers the syntax of every earlier version: ovn-kubernetes' long flags with
// one dash, OVS's bare --pidfile and -vSPEC, and the first releases' commands as links. Each
// line has the command, the flags that it sets and the remaining arguments.
func TestSpellings(t *testing.T) {
	for _, tt := range []struct{ typed, want string }{
		// One dash or two, the value joined or apart.
		{"ovnkube -init-master=m", "ovnkube | init-master=m |"},
		{"ovnkube --init-master=m", "ovnkube | init-master=m |"},
		{"ovnkube -init-master m -init-node n", "ovnkube | init-master=m init-node=n |"},
		{"ovnkube -init-node=n -nodeport -loglevel 4", "ovnkube | init-node=n loglevel=4 nodeport=true |"},
		{"ovnkube -cleanup-node n -k8s-kubeconfig=/k", "ovnkube | cleanup-node=n k8s-kubeconfig= |"},
		{"ovnkube -init-gateways -gateway-local -init-node n", "ovnkube | gateway-local= init-gateways= init-node=n |"},
		{"ovnkube agent -node-name=n -mtu 1400", "ovnkube agent | mtu=1400 node-name=n |"},
		{"ovnkube agent --node-name n --mtu=1400", "ovnkube agent | mtu=1400 node-name=n |"},
		{"ovnkube agent --cleanup", "ovnkube agent | cleanup=true |"},
		{"ovnkube agent -cleanup=false", "ovnkube agent | cleanup=false |"},
		{"ovnkube agent --nodeport=true --routable-pods=0", "ovnkube agent | nodeport=true routable-pods=false |"},
		{"ovnkube controller -cluster-subnets 10.244.0.0/16,fd00::/48 -leader-elect=0", "ovnkube controller | cluster-subnets=10.244.0.0/16/24,fd00::/48/64 leader-elect=false |"},
		{"ovnkube controller -nb-address=tcp:192.0.2.1:6641,tcp:192.0.2.2:6641", "ovnkube controller | nb-address=tcp:192.0.2.1:6641,tcp:192.0.2.2:6641 |"},
		// The last of repeated flags counts.
		{"ovnkube agent -mtu 1400 -mtu=1300", "ovnkube agent | mtu=1300 |"},
		// A value may be empty, have an equals sign, or begin with a dash.
		{"ovnkube agent --kubeconfig=", "ovnkube agent | kubeconfig= |"},
		{"ovnkube agent -k8s-token a=b", "ovnkube agent | k8s-token=a=b |"},
		{"ovnkube agent -k8s-token -a -node-name n", "ovnkube agent | k8s-token=-a node-name=n |"},
		{"ovnkube gateway monitor -pcap - -count 3", "ovnkube gateway monitor | count=3 pcap=- |"},
		{"ovnkube gateway explain -vlan -1 tcp a b", "ovnkube gateway explain | vlan=-1 | tcp a b"},
		// A boolean takes no following word.
		{"ovnkube config check -json file.conf", "ovnkube config check | json=true | file.conf"},
		{"ovnkube config check --json=false file.conf", "ovnkube config check | json=false | file.conf"},
		{"ovnkube gateway counters -all --json", "ovnkube gateway counters | all=true json=true |"},
		{"ovnkube gateway explain -tcp-flags syn,ack tcp 192.0.2.1:1 192.0.2.2:2", "ovnkube gateway explain | tcp-flags=syn,ack | tcp 192.0.2.1:1 192.0.2.2:2"},
		{"ovnkube gateway top -once -interval 1s", "ovnkube gateway top | interval=1s once=true |"},
		// Words after -- are arguments.
		{"ovnkube config check -- -json", "ovnkube config check | | -json"},
		{"ovnkube config check -json -- --json", "ovnkube config check | json=true | --json"},
		// A daemon's options, as in OVS's programs.
		{"ovnkube agent --pidfile --detach", "ovnkube agent | detach=true pidfile=/var/run/openvswitch/ovnkube-agent.pid |"},
		{"ovnkube agent -pidfile=/run/a.pid -no-chdir", "ovnkube agent | no-chdir=true pidfile=/run/a.pid |"},
		{"ovn-k8s-gateway-helper --pidfile --log-file -vfile:info --detach", "ovnkube ovn-k8s-gateway-helper | detach=true log-file=/var/log/openvswitch/ovn-k8s-gateway-helper.log pidfile=/var/run/openvswitch/ovn-k8s-gateway-helper.pid verbose=file:info |"},
		{"ovn-k8s-watcher --overlay --pidfile=/p -vconsole:emer -vfile:dbg", "ovnkube ovn-k8s-watcher | overlay=true pidfile=/p verbose=console:emer file:dbg |"},
		{"ovn-k8s-watcher -v --overlay", "ovnkube ovn-k8s-watcher | overlay=true verbose=dbg |"},
		{"ovn-k8s-watcher -vwarn", "ovnkube ovn-k8s-watcher | verbose=warn |"},
		{"ovn-k8s-watcher -vANY:file:INFO", "ovnkube ovn-k8s-watcher | verbose=ANY:file:INFO |"},
		{"ovn-k8s-watcher --verbose --overlay", "ovnkube ovn-k8s-watcher | overlay=true verbose=dbg |"},
		{"ovn-k8s-watcher --verbose=file:info", "ovnkube ovn-k8s-watcher | verbose=file:info |"},
		{"ovn-k8s-watcher -verbose=off", "ovnkube ovn-k8s-watcher | verbose=off |"},
		{"ovn-k8s-watcher --log-file=/l --overwrite-pidfile", "ovnkube ovn-k8s-watcher | log-file=/l overwrite-pidfile=true |"},
		{"ovnkube ovn-k8s-watcher -vfile:info --overlay", "ovnkube ovn-k8s-watcher | overlay=true verbose=file:info |"},
		{"/usr/bin/ovn-k8s-watcher -vfile:info", "ovnkube ovn-k8s-watcher | verbose=file:info |"},
		// Other commands of ovn-kubernetes' first releases.
		{"ovn-k8s-overlay master-init --cluster-ip-subnet=192.168.0.0/16 --master-switch-subnet=192.168.1.0/24 --node-name=m", "ovnkube ovn-k8s-overlay master-init | cluster-ip-subnet=192.168.0.0/16 master-switch-subnet=192.168.1.0/24 node-name=m |"},
		{"ovn-k8s-underlay master-init --cloud k8s -vm-network=vms", "ovnkube ovn-k8s-underlay master-init | cloud=k8s vm-network=vms |"},
		{"ovn-k8s-overlay gateway-init --bridge-interface breth0 --physical-ip 192.0.2.5/24 --default-gw=192.0.2.1", "ovnkube ovn-k8s-overlay gateway-init | bridge-interface=breth0 default-gw=192.0.2.1 physical-ip=192.0.2.5/24 |"},
		{"ovn-k8s-gateway-helper --physical-bridge=breth0 --physical-interface=eth0", "ovnkube ovn-k8s-gateway-helper | physical-bridge=breth0 physical-interface=eth0 |"},
		{"ovn-k8s-util nics-to-bridge eth0 eth1", "ovnkube ovn-k8s-util nics-to-bridge | | eth0 eth1"},
		{"ovn-k8s-util nics-to-bridge -force eth0", "ovnkube ovn-k8s-util nics-to-bridge | force=true | eth0"},
		{"ovn-k8s-util bridges-to-nics breth0", "ovnkube ovn-k8s-util bridges-to-nics | | breth0"},
		// The rest.
		{"ovnkube version", "ovnkube version | |"},
		{"ovnkube node drain-gateway -undo node3", "ovnkube node drain-gateway | undo=true | node3"},
		{"ovnkube nic-watchdog --ovsdb unix:/db --datapath= --pin-dir /p /run/x", "ovnkube nic-watchdog | datapath= ovsdb=unix:/db pin-dir=/p | /run/x"},
		// Mistakes.
		{"ovnkube agent -nonsense", "error"},
		{"ovnkube agent ---mtu=1", "error"},
		{"ovnkube agent -=1", "error"},
		{"ovnkube agent -mtu", "error"},
		{"ovnkube agent -mtu=", "error"},
		{"ovnkube agent --pidfile=", "error"},
		{"ovnkube agent -cleanup=perhaps", "error"},
		{"ovn-k8s-watcher -vnonsense", "error"},
		{"ovn-k8s-watcher -vfile:nonsense", "error"},
		{"ovnkube agent -vfile:info", "error"},
	} {
		if got := understood(strings.Fields(tt.typed)); got != tt.want {
			t.Errorf("%s\n is %q,\nwant %q", tt.typed, got, tt.want)
		}
	}
}

// understoodLine formats a parsed command line for TestSpellings.
func understoodLine(command string, flags, args []string) string {
	slices.Sort(flags)
	line := command + " | " + strings.Join(append(flags, "| "), " ") + strings.Join(args, " ")

	return strings.TrimSpace(line)
}
