package kube

import (
	"path/filepath"
	"strconv"
	"strings"
)

func etcdArgv(o Options, client, peer string) []string {
	return []string{
		"etcd",
		"--data-dir", filepath.Join(o.Dir, "etcd"),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default=" + peer,
		"--unsafe-no-fsync", // the data is temporary
		"--log-level", "warn",
	}
}

func apiserverArgv(o Options, p *pki, etcd string) []string {
	var cidrs []string
	for _, c := range o.ServiceCIDRs {
		cidrs = append(cidrs, c.String())
	}

	argv := []string{
		o.Binary,
		"--etcd-servers", etcd,
		"--bind-address", o.BindAddress.String(),
		"--secure-port", strconv.Itoa(o.Port),
		"--service-cluster-ip-range", strings.Join(cidrs, ","),
		"--tls-cert-file", p.path("apiserver.crt"), "--tls-private-key-file", p.path("apiserver.key"),
		"--client-ca-file", p.path("ca.crt"),
		"--authorization-mode", "Node,RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", p.path("service-account.key"),
		"--service-account-signing-key-file", p.path("service-account.key"),
		// A separate set of names, or any client could pose as a proxy.
		"--requestheader-client-ca-file", p.path("ca.crt"),
		"--requestheader-allowed-names", "front-proxy-client",
		"--requestheader-username-headers", "X-Remote-User",
		"--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-",
		"--proxy-client-cert-file", p.path("front-proxy.crt"), "--proxy-client-key-file", p.path("front-proxy.key"),
		"--kubelet-preferred-address-types", "InternalIP",
		"--enable-priority-and-fairness=false",
		"--allow-privileged",
	}
	if !o.Managed {
		// No controller creates the default service accounts.
		argv = append(argv, "--disable-admission-plugins", "ServiceAccount")
	}

	if o.AdvertiseAddress.IsLoopback() {
		// A loopback address may not be an endpoint of Service kubernetes; the
		// documentation address only satisfies the flag.
		argv = append(argv, "--endpoint-reconciler-type", "none", "--advertise-address", "192.0.2.1")
	} else {
		argv = append(argv, "--advertise-address", o.AdvertiseAddress.String())
	}

	return append(argv, o.ExtraArgs...)
}
