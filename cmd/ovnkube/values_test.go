package main

import (
	"bytes"
	"context"
	"flag"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

func TestValues(t *testing.T) {
	const id1, id2 = "0a0a0a0a-0000-4000-8000-000000000001", "0b0b0b0b-0000-4000-8000-000000000002"

	tests := []struct {
		name  string
		value flag.Value
		set   string
		want  string // what String says after it
		err   string // or part of the error
	}{
		{"cidrs", &prefixes{}, "10.96.0.0/16, fd00:10:96::/112", "10.96.0.0/16,fd00:10:96::/112", ""},
		{"cidr with host bits", &prefixes{}, "10.96.0.1/16", "", "10.96.0.0/16 has not"},
		{"no cidr", &prefixes{}, "10.96.0.0", "", `"10.96.0.0" is no CIDR`},
		{"tunnel ranges", tunnelRanges{optionalPrefixes{&prefixes{}}}, "192.0.2.0/24, 2001:db8::/64", "192.0.2.0/24,2001:db8::/64", ""},
		{"no tunnel ranges", tunnelRanges{optionalPrefixes{&prefixes{mustPrefix("192.0.2.0/24")}}}, "", "", ""},
		{"four tunnel ranges", tunnelRanges{optionalPrefixes{&prefixes{}}}, "10.0.0.0/9,10.128.0.0/9,11.0.0.0/8,12.0.0.0/8,fd00::/8", "10.0.0.0/9,10.128.0.0/9,11.0.0.0/8,12.0.0.0/8,fd00::/8", ""},
		{"five tunnel ranges", tunnelRanges{optionalPrefixes{&prefixes{}}}, "10.0.0.0/9,10.128.0.0/9,11.0.0.0/8,12.0.0.0/8,13.0.0.0/8", "", "5 IPv4 and 0 IPv6 networks: at most 4 of a family"},
		{"tunnel range without length", tunnelRanges{optionalPrefixes{&prefixes{}}}, "192.0.2.1", "", `"192.0.2.1" is no CIDR`},
		{"cluster subnet", &clusterSubnets{}, "10.244.0.0/16/24", "10.244.0.0/16/24", ""},
		{"cluster subnets, default lengths", &clusterSubnets{}, "10.244.0.0/16,fd00:10:244::/48", "10.244.0.0/16/24,fd00:10:244::/48/64", ""},
		{"host length too short", &clusterSubnets{}, "10.244.0.0/16/12", "", "does not fit in 10.244.0.0/16"},
		{"host length too long", &clusterSubnets{}, "10.244.0.0/16/31", "", "does not fit"},
		{"host length no number", &clusterSubnets{}, "10.244.0.0/16/x", "", "is no number"},
		{"addresses", &addresses{}, "192.0.2.1,2001:db8::1", "192.0.2.1,2001:db8::1", ""},
		{"no address", &addresses{}, "192.0.2", "", `"192.0.2" is no IP address`},
		{"ports", &cluster.PortRange{}, "49152-65535", "49152-65535", ""},
		{"ports reversed", &cluster.PortRange{}, "65535-49152", "", "not a port range"},
		{"port zero", &cluster.PortRange{}, "0-10", "", "not a port range"},
		{"one port", &cluster.PortRange{}, "49152", "", "not a port range"},
		{"port too large", &cluster.PortRange{}, "1-65536", "", "not a port range"},
		{"server's URL", server(), "https://192.0.2.1:6443", "https://192.0.2.1:6443", ""},
		{"server's URL without a port", server(), "https://192.0.2.1", "https://192.0.2.1", ""},
		{"server's host and port", server(), "127.0.0.1:8080", "http://127.0.0.1:8080", ""},
		{"server's IPv6 address and port", server(), "[::1]:8080", "http://[::1]:8080", ""},
		{"server's name and port", server(), "kube-master:8080", "http://kube-master:8080", ""},
		{"no server", server(), "", "", ""},
		{"server's host alone", server(), "192.0.2.1", "", "nor HOST:PORT like 127.0.0.1:8080"},
		{"server's IPv6 address without brackets", server(), "::1:8080", "", "nor HOST:PORT"},
		{"server's port alone", server(), ":8080", "", "nor HOST:PORT"},
		{"server's port zero", server(), "127.0.0.1:0", "", `port "0" of "127.0.0.1:0" is not`},
		{"server's path", server(), "127.0.0.1:8080/api", "", "nor HOST:PORT"},
		{"UUIDs", &uuids{}, id2 + ", " + id1 + "," + id2, id1 + "," + id2, ""},
		{"no UUIDs", &uuids{id1}, "", "", ""},
		{"UUID in upper case", &uuids{}, strings.ToUpper(id1), "", "is not a UUID (lower case, with dashes)"},
		{"UUIDs with an empty one", &uuids{}, id1 + ",", "", `"" is not a UUID`},
		{"another scheme", server(), "ftp://192.0.2.1", "", "is no URL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.value.Set(tt.set)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("Set(%q): %v, want %q", tt.set, err, tt.err)
				}

				return
			}

			if err != nil || tt.value.String() != tt.want {
				t.Fatalf("Set(%q): %q, %v; want %q", tt.set, tt.value, err, tt.want)
			}
		})
	}
}

func server() flag.Value { return serverURL{new(string)} }

// Each mistake is one line that names the value, with exit status 1.
func TestBadInput(t *testing.T) {
	const kube = "-k8s-apiserver=http://127.0.0.1:1"

	tests := []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"agent", "--no-such-flag"}, "agent: unknown flag: --no-such-flag; see 'ovnkube agent --help'"},
		{"unknown command", []string{"agnet"}, `"agnet" is no command`},
		{"unknown subcommand", []string{"gateway", "count"}, `gateway: "count" is no command`},
		{"argument left over", []string{"gateway", "counters", "eth0"}, `unexpected argument "eth0"`},
		{"bad CIDR", []string{"controller", "--cluster-subnets", "10.244.0.0"}, `"10.244.0.0" is no CIDR`},
		{"overlapping subnets", []string{"controller", kube, "--cluster-subnets", "10.96.0.0/12", "--k8s-service-cidrs", "10.96.0.0/16"}, "10.96.0.0/16"},
		{"missing kubeconfig", []string{"agent", "--kubeconfig", "/no/such/file"}, `read kubeconfig "/no/such/file"`},
		{"missing uplink", []string{"agent", kube, "--node-name", "n", "--gateway-interface", "nosuch0"}, "nosuch0"},
		{"nothing pinned", []string{"gateway", "counters", "--pin-dir", "/no/such/dir"}, "/no/such/dir"},
		{"several mistakes", []string{"agent", kube, "--node-name", "n", "--mtu", "3", "--pin-dir", "x"}, `want 576..65535 (mtu is from -mtu); pin directory "x": not an absolute path (pin-dir is from -pin-dir)`},
		{"bad value without a command", []string{"-init-node=n", "-cluster-subnets=1"}, `ovnkube: invalid argument "1"`},
		{"no role", []string{"-loglevel=4"}, "nothing to run"},
		{"two encapsulation addresses", []string{"agent", kube, "--node-name", "n", "--encap-ip", "192.0.2.1,192.0.2.2"}, "one address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer

			args := tt.args
			if args[0] == "agent" {
				args = append(args, "--run-dir", t.TempDir()) // keeps the machine's run directory out
			}

			err := run(context.Background(), args, &stdout, &stderr)
			if code := exitCode(err, &stderr); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}

			_, report, _ := strings.Cut("\n"+stderr.String(), "\novnkube: ") // after the log, if any
			if report = "ovnkube: " + report; !strings.Contains(report, tt.want) || strings.Count(report, "\n") != 1 {
				t.Errorf("stderr %q, want one line with %q", stderr.String(), tt.want)
			}
		})
	}
}

// Former commands name the programs that replaced them.
func TestMoved(t *testing.T) {
	for typed, want := range map[string]string{
		"lab": "type: ovnlab", "lab up --nodes 2": "type: ovnlab up --nodes 2", "bench run -yes 192.0.2.1": "type: ovnbench run -yes 192.0.2.1",
	} {
		var stdout, stderr bytes.Buffer

		code := exitCode(run(context.Background(), strings.Fields(typed), &stdout, &stderr), &stderr)
		if code != 2 || !strings.HasSuffix(stderr.String(), want+"\n") || stdout.Len() > 0 {
			t.Errorf("%s: exit status %d, %q, %q", typed, code, stdout.String(), stderr.String())
		}
	}
}
