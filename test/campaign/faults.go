package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// fault is one kind of fault.
type fault struct {
	kind string
	// own faults affect the host's own link or address: then its paths may lose packets.
	own bool
	// longest is its maximum duration.
	longest time.Duration
	// after is the minimum time of pod creation after it: until a former leader has noticed its loss
	// of the lease.
	after time.Duration
	// inject starts the fault on a node, or on a target chosen by r. It returns a function that ends
	// it.
	inject func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error)
}

// faults is the campaign of process faults.
type faults struct {
	*ground
	proxies map[string]*proxy
	heal    time.Duration // time limit for recovery
}

// processes are the processes to kill and freeze, by prefix or suffix of their names. NODE stands
// for one of the nodes.
var processes = []struct {
	kind, name string
	longest    time.Duration
	after      time.Duration
}{
	{"agent", "agent-NODE", 6 * time.Second, 0},
	{"controller, leading", "leader", 12 * time.Second, 6 * time.Second}, // beyond its lease
	{"controller, standing by", "follower", 6 * time.Second, 0},
	{"ovs-vswitchd", "NODE-ovs-vswitchd", 4 * time.Second, 0},
	{"node's ovsdb-server", "NODE-db", 5 * time.Second, 0},
	{"ovn-controller", "NODE-ovn-controller", 5 * time.Second, 0},
	{"ovn-northd", "central-ovn-northd", 5 * time.Second, 0},
	{"Northbound ovsdb-server", "central-ovnnb_db", 6 * time.Second, 0},
	{"Southbound ovsdb-server", "central-ovnsb_db", 6 * time.Second, 0},
	{"kube-apiserver", "kube-apiserver", 5 * time.Second, 0},
	{"etcd", "etcd", 5 * time.Second, 0},
}

// kinds returns all faults.
func kinds() []fault {
	var out []fault
	for _, p := range processes {
		out = append(out,
			fault{kind: p.kind + " stopped", longest: p.longest, after: p.after, inject: func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
				name, err := f.named(ctx, p.name, r)
				if err != nil {
					return name, nil, err
				}

				thaw, err := f.Freeze(name)

				return name, thaw, err
			}},
			fault{kind: p.kind + " killed", longest: p.longest / 2, inject: func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
				name, err := f.named(ctx, p.name, r)
				if err != nil {
					return name, nil, err
				}

				again, err := f.Kill(name)

				return name, again, err
			}})
	}

	for server := range proxied {
		out = append(out,
			fault{kind: server + " slow", longest: 6 * time.Second, inject: func(_ context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
				delay := 100*time.Millisecond + time.Duration(r.Int64N(int64(2*time.Second)))
				return delay.Round(time.Millisecond).String(), f.proxies[server].slow(delay, false), nil
			}},
			fault{kind: server + " half open", longest: 12 * time.Second, inject: func(_ context.Context, f *faults, _ *rand.Rand) (string, func() error, error) {
				return "", f.proxies[server].slow(0, true), nil
			}})
	}

	for kind, of := range map[string]string{"/run and /var of a node full": "NODE", "disk of OVN's databases full": "central", "disk of etcd full": "kube"} {
		out = append(out, fault{kind: kind, longest: 5 * time.Second, inject: func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
			name, err := f.named(ctx, of, r)
			if err != nil {
				return name, nil, err
			}

			free, err := f.full(name)

			return name, free, err
		}})
	}

	if os.Getenv(vmEnv) != "" {
		out = append(out, clocks()...)
	}

	return append(out, links()...)
}

// vmEnv is set by test/vm/run in a machine whose clock the campaign may change.
const vmEnv = "VM_KERNEL"

// clocks returns jumps of the machine's clock, and back.
func clocks() []fault {
	var out []fault

	for name, by := range map[string]time.Duration{"clock jumps half an hour ahead": 30 * time.Minute, "clock jumps half an hour back": -30 * time.Minute} {
		jump := func(by time.Duration) error {
			at := unix.NsecToTimeval(time.Now().Add(by).UnixNano())
			return unix.Settimeofday(&at)
		}

		out = append(out, fault{kind: name, longest: 8 * time.Second, inject: func(context.Context, *faults, *rand.Rand) (string, func() error, error) {
			return "", func() error { return jump(-by) }, jump(by)
		}})
	}

	return out
}

// living are the processes that may end on a full disk, by disk.
var living = map[string][]string{
	"NODE": {"NODE-db", "NODE-ovs-vswitchd", "NODE-ovn-controller", "agent-NODE"}, "central": {"central-ovnnb_db", "central-ovnsb_db", "central-ovn-northd"}, "kube": {"etcd", "kube-apiserver"},
}

// full fills a disk. When space is free again, it restarts the processes that have ended, as a
// supervisor would: etcd ends when it cannot write.
func (f *faults) full(of string) (free func() error, err error) {
	names := living[of]
	if names == nil {
		names = living["NODE"]
	}

	var again []func() error

	for _, name := range names {
		start, err := f.Supervise(strings.ReplaceAll(name, "NODE", of))
		if err != nil {
			return nil, err
		}

		again = append(again, start)
	}

	room, err := f.FillDisk(of)

	return func() error {
		err := room()
		for _, start := range again {
			err = errors.Join(err, start())
		}

		return err
	}, err
}

// named resolves the name of a process.
func (f *faults) named(ctx context.Context, name string, r *rand.Rand) (string, error) {
	if name != "leader" && name != "follower" {
		return strings.ReplaceAll(name, "NODE", fmt.Sprintf("node%d", 1+r.IntN(2))), nil
	}

	leader, err := f.leader(ctx)
	if err != nil {
		return "", err
	}

	if (name == "leader") == (leader == "controller") {
		return "controller", nil
	}

	return "standby", nil
}

// links returns faults of interfaces and addresses.
func links() []fault {
	second := time.Second

	return []fault{
		{kind: "uplink without carrier", own: true, longest: 4 * second, inject: func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
			node := f.some(r)
			return node.Name, f.do(ctx, "central", "ip", "link", "set", node.Name, "up"), f.do(ctx, "central", "ip", "link", "set", node.Name, "down")()
		}},
		{kind: "uplink deleted and made again", own: true, longest: 4 * second, inject: func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
			node := f.some(r)

			out, err := f.Exec(ctx, node.Name, "ip", "-br", "link", "show", "eth0")
			if err != nil || len(strings.Fields(string(out))) < 3 {
				return node.Name, nil, fmt.Errorf("read MAC: %w: %s", err, out)
			}

			mac, err := net.ParseMAC(strings.Fields(string(out))[2])
			if err != nil {
				return node.Name, nil, err
			}

			return node.Name, func() error { return f.PlugNode(node.Index, mac) }, f.UnplugNode(node.Index)
		}},
		{kind: "bridge breth0 deleted", inject: func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
			node := f.some(r)
			return node.Name, nil, f.do(ctx, node.Name, "ovs-vsctl", "--timeout=20", "--db="+node.OVSDB, "del-br", "breth0")()
		}},
		{kind: "device breth0 deleted", inject: func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
			node := f.some(r)
			return node.Name, nil, f.delDevice(ctx, node, "breth0")
		}},
		{kind: "device ovn-k8s-mp0 deleted", inject: func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
			node := f.some(r)
			return node.Name, nil, f.delDevice(ctx, node, "ovn-k8s-mp0")
		}},
		{kind: "port of a pod deleted from OVS", inject: func(ctx context.Context, f *faults, _ *rand.Rand) (string, func() error, error) {
			node := f.Node(1)

			out, err := f.Exec(ctx, node.Name, "ovs-vsctl", "--timeout=20", "--db="+node.OVSDB, "--bare", "--columns=name", "find", "Interface", "external_ids:iface-id="+victim+"_b")
			if err != nil {
				return "b", nil, err
			}

			return "b", nil, f.do(ctx, node.Name, "ovs-vsctl", "--timeout=20", "--db="+node.OVSDB, "--if-exists", "del-port", "br-int", strings.TrimSpace(string(out)))()
		}},
		{kind: "interface of a pod deleted, the pod made again", longest: 2 * second, inject: func(ctx context.Context, f *faults, _ *rand.Rand) (string, func() error, error) {
			pod, err := f.newPod(ctx, f.Node(2).Name)
			if err != nil {
				return "", nil, err
			}

			return pod.Name, func() error {
				if err := f.delPod(ctx, pod); err != nil {
					return err
				}

				return f.podWorks(ctx, f.Node(2).Name)
			}, f.do(ctx, pod.Host(), "ip", "link", "del", "eth0")()
		}},
		{kind: "another address comes and goes", longest: 4 * second, inject: func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
			node := f.some(r)
			a4, a6 := fmt.Sprintf("172.30.0.%d/24", 60+node.Index), fmt.Sprintf("fd00:172:30::%d/64", 60+node.Index)
			change := func(verb string) error {
				return errors.Join(f.do(ctx, node.Name, "ip", "addr", verb, a4, "dev", "eth0")(), f.do(ctx, node.Name, "ip", "addr", verb, a6, "dev", "eth0")())
			}

			return node.Name, func() error { return change("del") }, change("add")
		}},
		{kind: "the address changes and changes back", own: true, longest: 8 * second, inject: func(ctx context.Context, f *faults, r *rand.Rand) (string, func() error, error) {
			node := f.some(r)
			now, other := node.IP4.String()+"/24", fmt.Sprintf("172.30.0.%d/24", 80+node.Index)
			change := func(from, to string) error {
				return errors.Join(
					f.do(ctx, node.Name, "ip", "addr", "del", from, "dev", "eth0")(), f.do(ctx, node.Name, "ip", "addr", "add", to, "dev", "eth0")(),
					f.do(ctx, node.Name, "ip", "route", "replace", "default", "via", lab.ExtIP4)())
			}

			return node.Name, func() error { return change(other, now) }, change(now, other)
		}},
	}
}

func (f *faults) some(r *rand.Rand) *lab.Node { return f.Node(1 + r.IntN(2)) }

// delDevice deletes a device of Open vSwitch. A tap of the userspace datapath is an ordinary link;
// a port of the kernel datapath can only be deleted from the datapath.
func (f *faults) delDevice(ctx context.Context, node *lab.Node, device string) error {
	if f.Datapath() == "system" {
		return f.do(ctx, node.Name, "ovs-dpctl", "del-if", "ovs-system", device)()
	}

	return f.do(ctx, node.Name, "ip", "link", "del", device)()
}

// do returns a function that runs a command.
func (f *faults) do(ctx context.Context, on string, argv ...string) func() error {
	return func() error {
		_, err := f.Exec(ctx, on, argv...)
		return err
	}
}
