package lab

import (
	"fmt"
	"io"
	"strings"
)

// Next writes suggestions for commands in the lab. command is the program's name, such as "ovnlab",
// and which are the flags that select this lab, if any.
func (l *Lab) Next(w io.Writer, command, which string) {
	if which != "" {
		which += " "
	}

	type line struct {
		verb, rest, what string
		when             bool
	}

	fmt.Fprintln(w, "\nTry:")

	cloud := l.opts.VMs > 0
	for _, c := range []line{
		{"status", "", "what runs", true},
		{"exec", "node1 ovnkube status", "is the gateway right?", l.opts.Cluster && !cloud},
		{"exec", "node1 ovnkube gateway counters", "who got what, and why", l.opts.Cluster && !cloud},
		{"exec", "vm1 ping -c 1 10.0.0.100", "from a node to the VM that is none, plain", cloud},
		{"exec", "vm1 ovnkube status", "is the node right?", l.opts.Cluster && cloud},
		{"exec", "central kubectl get nodes -o wide", "", l.opts.Kube},
		{"exec", "central kubectl create deployment web --image=web --replicas=2", "pods that answer HTTP", l.opts.Pods},
		{"exec", "central kubectl get pods -o wide", "", l.opts.Cluster},
		{"exec", "pod:default/POD curl http://ADDRESS/", "from a pod; ext is a host outside", l.opts.Cluster},
		{"exec", "cloud openstack port list --network " + ProjectName + "-vm1", "the ports of pods in Neutron", l.opts.Cluster && l.opts.Cloud},
		{"exec", "central ovn-nbctl show", "OVN's side of it", true},
		{"down", "", "", true},
	} {
		if !c.when {
			continue
		}

		text := strings.TrimRight(fmt.Sprintf("%s %s %s%s", command, c.verb, which, c.rest), " ")
		if c.what != "" {
			text = fmt.Sprintf("%-82s # %s", text, c.what)
		}

		fmt.Fprintln(w, "  "+text)
	}
}
