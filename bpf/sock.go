package bpf

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// SockService is a Service as the host's sockets see it. Nil Ports deletes it.
type SockService struct {
	Key   string // unique, stable: namespace/name
	Ports []SockPort
}

// SockPort is a port of a Service with its frontends and backends.
type SockPort struct {
	// Frontends are the addresses that clients connect to. An unspecified address stands for every
	// host address of its family (SyncAddrs) and, unless NotLoopback is set, for loopback: a NodePort.
	// A specific address takes precedence. If several services share a frontend, the service with the
	// smallest key gets it.
	Frontends   []netip.AddrPort
	NotLoopback bool  // an unspecified address does not stand for loopback: a host port
	Proto       uint8 // 6 or 17
	// Backends are ready. A frontend uses those of its family. Without any it refuses connections.
	Backends []netip.AddrPort
	Affinity time.Duration // timeout of ClientIP session affinity, in whole seconds; 0: none
}

// Sock translates connections of the host's sockets from a Service's frontends to its backends. It
// acts in the host's network namespace when a socket connects. Its methods are not safe for
// concurrent use.
//
// The backend of a connection is random. A UDP socket that sends without a connection keeps its
// backend per frontend while that backend exists. For ClientIP affinity the host counts as one
// client: all its connections to the frontends of one port and family go to one backend, until the
// affinity timeout has passed without a new connection.
//
// Both kinds of socket see the frontend as their peer address. A frontend without backends refuses
// connections with ECONNREFUSED, before Linux 6.1 with EPERM.
type Sock struct {
	cgroupPrograms

	objs    sockObjects
	wanted  map[string][]*sockGroup // by service; nil before the first SyncServices
	leftOut map[string][]*sockGroup // services that the tables have no room for
	used    sockSize                // of wanted
	state   *sockState              // nil: must be read from the tables
	gone    []sockBack
}

// OpenSock loads the programs and adopts state pinned by an earlier load. Programs that are
// attached stay until Attach, which must come after SyncServices. The error wraps ErrNoCgroup if
// the host has no cgroup v2 to attach to.
func OpenSock(opts CgroupOptions) (*Sock, error) {
	spec, err := loadSock()
	if err != nil {
		return nil, fmt.Errorf("read socket programs: %w", err)
	}

	// 0 would work on every kernel, but with a less specific errno.
	if err := spec.Variables[sockVarHasSetRetval].Set(hasSetRetval()); err != nil {
		return nil, fmt.Errorf("set up socket programs: %w", err)
	}

	s := &Sock{cgroupPrograms: cgroupPrograms{kind: "socket"}}
	if s.opts, err = opts.load(spec, spec.Variables[sockVarHostNetns], &s.objs); err != nil {
		return nil, fmt.Errorf("load socket programs: %w", err)
	}

	s.hooks = sockHooks(&s.objs.sockPrograms)

	return s, nil
}

// hasSetRetval reports whether programs of these hooks can set the errno. The helper gets a proper
// argument: Linux 7.3 refuses the call without one (features.HaveProgramHelper) with the errno of a
// helper that it does not have.
func hasSetRetval() bool {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, -int32(unix.ECONNREFUSED)),
			asm.FnSetRetval.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	})

	return err == nil && p.Close() == nil
}

// sockHooks returns the hooks in the order of attachment: the hooks that report the frontend as
// peer come before those that translate.
func sockHooks(p *sockPrograms) []cgroupHook {
	return []cgroupHook{
		{sockProgSockRecvmsg4, p.SockRecvmsg4, ebpf.AttachCGroupUDP4Recvmsg},
		{sockProgSockRecvmsg6, p.SockRecvmsg6, ebpf.AttachCGroupUDP6Recvmsg},
		{sockProgSockGetpeername4, p.SockGetpeername4, ebpf.AttachCgroupInet4GetPeername},
		{sockProgSockGetpeername6, p.SockGetpeername6, ebpf.AttachCgroupInet6GetPeername},
		{sockProgSockSendmsg4, p.SockSendmsg4, ebpf.AttachCGroupUDP4Sendmsg},
		{sockProgSockSendmsg6, p.SockSendmsg6, ebpf.AttachCGroupUDP6Sendmsg},
		{sockProgSockConnect4, p.SockConnect4, ebpf.AttachCGroupInet4Connect},
		{sockProgSockConnect6, p.SockConnect6, ebpf.AttachCGroupInet6Connect},
	}
}

// Detach detaches the programs, those that translate first, and removes their pins and those of the
// tables. Afterwards only Close may be called.
func (s *Sock) Detach() error {
	return s.detach(sockMapSockAddrs, sockMapSockAffinity, sockMapSockBackends,
		sockMapSockConnected, sockMapSockExchanges, sockMapSockExempt, sockMapSockFrontends, sockMapSockPeers)
}

// Close releases this load. Attached programs stay attached and pinned.
func (s *Sock) Close() error { return s.objs.Close() }
