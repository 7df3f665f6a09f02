package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// vms are the nodes of Kubernetes.
var vms = []string{"vm1", "vm2"}

// requests is the number of requests per line of the table.
const requests = 10

// end is a host or pod with a server.
type end struct {
	name, on string
	address  netip.Addr
}

func (d *cloudDemo) podEnd(name string) end { return end{name, host(name), d.pods[name].address} }

// path is a way between two ends.
type path struct {
	name     string
	from, to end
	inside   bool // packets do not leave the VM
}

// paths returns every kind of path that begins or ends at the pod, which is on vm1.
func (d *cloudDemo) paths(name string) []path {
	pod := d.podEnd(name)
	vm1, vm2 := end{"vm1", "vm1", d.VM(1).IP4}, end{"vm2", "vm2", d.VM(2).IP4}
	plain := end{"plain", "plain", d.Plain().IP4}
	ext := end{"ext", "ext", netip.MustParseAddr(lab.ExtIP4)}

	return []path{
		{name: "pod to pod on its VM", from: pod, to: d.podEnd("b")},
		{name: "pod to pod on another VM", from: pod, to: d.podEnd("c")},
		{name: "pod to its own VM", from: pod, to: vm1, inside: true},
		{name: "pod to another node", from: pod, to: vm2},
		{name: "pod to a VM that is no node", from: pod, to: plain},
		{name: "pod to outside", from: pod, to: ext},
		{name: "VM to its own pod", from: vm1, to: pod, inside: true},
		{name: "another node to pod", from: vm2, to: pod},
		{name: "VM that is no node to pod", from: plain, to: pod},
		{name: "outside to pod", from: ext, to: pod},
	}
}

// showPaths sends traffic on all paths of the pod, and prints a line for each path and protocol.
func (d *cloudDemo) showPaths(ctx context.Context, name string) error {
	fmt.Fprintf(d.w, "\n%d requests per line; packets that the eBPF programs of vm1 and vm2 counted\n\n", requests)
	fmt.Fprintf(d.w, "%-28s %-5s %-12s %-12s %-12s %s\n",
		"PATH", "", "from pods", "to pods", "in the VM", "the server saw")

	for _, p := range d.paths(name) {
		for _, protocol := range []string{"tcp", "udp", "icmp"} {
			if err := d.showPath(ctx, p, protocol); err != nil {
				return fmt.Errorf("%s, %s: %w", p.name, protocol, err)
			}
		}
	}

	return nil
}

// attempts is how often traffic on a path is tried if the hypervisors drop packets. Their userspace
// datapath does so on a busy machine, and counts it.
const attempts = 5

func (d *cloudDemo) showPath(ctx context.Context, p path, protocol string) error {
	// The first packet resolves neighbours along the path.
	if _, err := d.Exec(ctx, p.from.on, ping(p.to, 1, "-w", "30", "-i", "0.2")...); err != nil {
		return err
	}

	for try := 1; ; try++ {
		dropped, err := d.Dropped(ctx)
		if err != nil {
			return err
		}

		line, err := d.tryPath(ctx, p, protocol)
		if err == nil {
			fmt.Fprintln(d.w, line)
			return nil
		}

		now, droppedErr := d.Dropped(ctx)
		if now == dropped || droppedErr != nil || try == attempts {
			return errors.Join(err, droppedErr)
		}

		fmt.Fprintf(d.w, "(run again, because the hypervisors dropped %d packets: %v)\n", now-dropped, err)
	}
}

// tryPath sends the requests, and compares the programs' counters with those of the pods' own
// kernel.
func (d *cloudDemo) tryPath(ctx context.Context, p path, protocol string) (line string, err error) {
	before, err := d.settled(ctx)
	if err != nil {
		return "", err
	}

	seen, err := d.ask(ctx, p, protocol)
	if err != nil {
		return "", err
	}

	after, err := d.settled(ctx)
	if err != nil {
		return "", err
	}

	var columns [3][]string

	for i, vm := range vms {
		got, pods := after[i].minus(before[i]), after[i].pods.minus(before[i].pods)

		want := tally{out: pods.sent, in: pods.received}
		if p.inside {
			// The VM routes packets to its own pods, past the programs.
			want = tally{host: pods.sent}
		}

		if got.tally != want {
			return "", fmt.Errorf("the programs of %s counted %+v, its pods %+v", vm, got.tally, want)
		}

		if i == 0 && protocol != "tcp" && pods.sent%requests != 0 || i == 0 && pods.sent < requests {
			return "", fmt.Errorf("%d packets of pods on %s, want %d per request", pods.sent, vm, requests)
		}

		for j, n := range []uint64{got.out, got.in, got.host} {
			columns[j] = append(columns[j], strconv.FormatUint(n, 10))
		}
	}

	return fmt.Sprintf("%-28s %-5s %-12s %-12s %-12s %s", p.name, protocol, strings.Join(columns[0], ", "),
		strings.Join(columns[1], ", "), strings.Join(columns[2], ", "), seen), nil
}

// ask sends the requests of a protocol one after another. All must be answered, by the right server and
// for the client's own address, which is returned.
func (d *cloudDemo) ask(ctx context.Context, p path, protocol string) (seen string, err error) {
	if protocol == "icmp" {
		out, err := d.Exec(ctx, p.from.on, ping(p.to, requests, "-i", "0.02", "-W", "2")...)
		if err == nil && !strings.Contains(string(out), fmt.Sprintf("%d received, 0%% packet loss", requests)) {
			err = fmt.Errorf("lost: %s", out)
		}

		return "", err
	}

	server := netip.AddrPortFrom(p.to.address, serverPort)

	out, err := d.Traffic(ctx, p.from.on, protocol, "-n", strconv.Itoa(requests), server.String())
	if err != nil {
		return "", err
	}

	replies := strings.Split(strings.TrimSpace(out), "\n")
	if len(replies) != requests {
		return "", fmt.Errorf("%d replies to %d requests", len(replies), requests)
	}

	for _, reply := range replies {
		name, address, _ := strings.Cut(reply, " ")

		client, err := netip.ParseAddrPort(address)
		if err != nil || name != p.to.name || client.Addr().Unmap() != p.from.address {
			return "", fmt.Errorf("reply %q, want %s and the client's address %s", reply, p.to.name, p.from.address)
		}
	}

	return p.from.address.String(), nil
}

func ping(to end, count int, args ...string) []string {
	return append(append([]string{"ping", "-n", "-q", "-c", strconv.Itoa(count)}, args...), to.address.String())
}

// tally has the packets that the programs of a VM counted.
type tally struct {
	out, in uint64 // from pods to the NIC, and from there to pods
	host    uint64 // from pods to their VM
	other   uint64 // with any other reason, such as dropped packets
}

// traffic has the IP packets that the kernels of the pods on a VM counted.
type traffic struct{ sent, received uint64 }

func (a traffic) minus(b traffic) traffic {
	return traffic{a.sent - b.sent, a.received - b.received}
}

// packets has what is counted on a VM.
type packets struct {
	tally
	pods traffic
}

func (a packets) minus(b packets) packets {
	return packets{tally: tally{
		out: a.out - b.out, in: a.in - b.in, host: a.host - b.host, other: a.other - b.other,
	}}
}

// settled returns the counters of vm1 and vm2 when they have stopped moving.
func (d *cloudDemo) settled(ctx context.Context) ([2]packets, error) {
	last, err := d.counted(ctx)
	for end := time.Now().Add(10 * time.Second); err == nil; {
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}

		var now [2]packets

		now, err = d.counted(ctx)
		if now == last {
			return last, err
		}

		if time.Now().After(end) {
			return now, fmt.Errorf("the counters keep moving: %+v", now)
		}

		last = now
	}

	return last, err
}

// counted returns the counters of vm1 and vm2.
func (d *cloudDemo) counted(ctx context.Context) (all [2]packets, err error) {
	for i := range all {
		counters, err := bpf.ReadNestedCounters(d.VM(i + 1).PinDir)
		if err != nil {
			return all, err
		}

		t := &all[i].tally

		columns := map[string]*uint64{"tx out": &t.out, "rx in": &t.in, "tx host": &t.host}
		for _, c := range counters {
			if n := columns[c.Direction+" "+c.Reason]; n != nil {
				*n += c.Packets
			} else {
				t.other += c.Packets
			}
		}
	}

	for name, pod := range d.pods {
		table, err := d.Exec(ctx, host(name), "cat", "/proc/net/snmp")
		if err != nil {
			return all, err
		}

		counters, err := ipCounters(string(table))
		if err != nil {
			return all, fmt.Errorf("packets of pod %s: %w", name, err)
		}

		pods := &all[slices.Index(vms, pod.vm)].pods
		pods.sent, pods.received = pods.sent+counters.sent, pods.received+counters.received
	}

	return all, nil
}

// ipCounters returns the IP packets of a network namespace, from its table in /proc/net/snmp.
func ipCounters(table string) (traffic, error) {
	var names []string

	for line := range strings.Lines(table) {
		kind, values, _ := strings.Cut(strings.TrimSpace(line), ":")
		if kind != "Ip" {
			continue
		}

		if names == nil { // the first line has the names, the second one the values
			names = strings.Fields(values)
			continue
		}

		counters := map[string]uint64{}

		for i, value := range strings.Fields(values) {
			n, err := strconv.ParseUint(value, 10, 64)
			if err == nil && i < len(names) {
				counters[names[i]] = n
			}
		}

		return traffic{sent: counters["OutRequests"], received: counters["InReceives"]}, nil
	}

	return traffic{}, errors.New("no IP counters in /proc/net/snmp")
}
