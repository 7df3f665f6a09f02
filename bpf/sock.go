package bpf

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
)

// SockService is a Service as the host's sockets see it. Ports nil deletes it.
type SockService struct {
	Key   string // unique, stable: namespace/name
	Ports []SockPort
}

// SockPort is a port of a Service, with all that stands for it.
type SockPort struct {
	// FrontEnds are what is connected to. One with the unspecified address of a family
	// stands for every address of the host (SyncAddrs) and loopback: a NodePort.
	// One with an address goes before it. If several services have the same front end,
	// that of the smallest key has it.
	FrontEnds []netip.AddrPort
	Proto     uint8 // 6 or 17
	// Backends are ready. A front end gets those of its family; none: it refuses.
	Backends []netip.AddrPort
	Affinity time.Duration // of ClientIP session affinity, in whole seconds; 0: none
}

// Sock translates the sockets of the host's network namespace from a Service's
// front ends to its backends, where they connect. Its methods are not for
// concurrent use.
//
// A connection's backend is picked at random. A UDP socket that sends without
// a connection keeps its backend, per front end, as long as it is there. The
// host is one client to ClientIP affinity: all its connections to the front ends of one
// port and family go to one backend until nobody has connected for that long.
//
// Both kinds of socket are told the front end as their peer. A front end without backends
// refuses: ECONNREFUSED, before Linux 6.1 EPERM.
type Sock struct {
	opts   CgroupOptions
	objs   sockObjects
	hooks  []cgroupHook
	wanted map[string][]*sockGroup // by service; nil before the first SyncServices
	state  *sockState              // nil: to be read from the tables
	gone   []sockBack
}

// OpenSock loads the programs. State pinned by an earlier load is taken over;
// what that attached goes on until Attach, which comes after SyncServices.
// The error wraps ErrNoCgroup if there is nothing to attach to.
func OpenSock(opts CgroupOptions) (*Sock, error) {
	spec, err := loadSock()
	if err != nil {
		return nil, fmt.Errorf("read socket programs: %w", err)
	}
	// 0 would be right everywhere, with a less fitting errno.
	setRetval := features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnSetRetval) == nil
	if err := spec.Variables[sockVarHasSetRetval].Set(setRetval); err != nil {
		return nil, fmt.Errorf("set up socket programs: %w", err)
	}
	s := &Sock{}
	if s.opts, err = opts.load(spec, spec.Variables[sockVarHostNetns], &s.objs); err != nil {
		return nil, fmt.Errorf("load socket programs: %w", err)
	}
	s.hooks = sockHooks(&s.objs.sockPrograms)
	return s, nil
}

// sockHooks are in the order of attaching: a socket that is translated is told so.
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

// Attach puts the programs on the cgroup, beside those of others. Programs of an
// earlier load are replaced, each atomically. It is idempotent.
func (s *Sock) Attach() error {
	for _, h := range s.hooks {
		if err := attachCgroup(s.opts.PinDir, s.opts.CgroupPath, h); err != nil {
			return fmt.Errorf("attach socket programs: %w", err)
		}
	}
	return nil
}

// Attached tells whether all programs are on the cgroup, and are those of this load.
func (s *Sock) Attached() (bool, error) {
	return attachedCgroup(s.opts.PinDir, s.opts.CgroupPath, s.hooks)
}

// Detach takes the programs off, those that translate first, and removes their
// pins and the tables'. The Sock can still be closed, and nothing else.
func (s *Sock) Detach() error {
	for i := len(s.hooks) - 1; i >= 0; i-- {
		if err := detachCgroup(s.opts.PinDir, s.hooks[i].name); err != nil {
			return err
		}
	}
	return unpinMaps(s.opts.PinDir,
		sockMapSockAddrs, sockMapSockAffinity, sockMapSockBackends, sockMapSockExchanges, sockMapSockFrontends, sockMapSockPeers)
}

// maps returns the tables.
func (s *Sock) maps() []*ebpf.Map {
	m := s.objs.sockMaps
	return []*ebpf.Map{m.SockFrontends, m.SockBackends, m.SockAddrs, m.SockAffinity, m.SockExchanges, m.SockPeers}
}

func unpinMaps(pinDir string, names ...string) error {
	for _, name := range names {
		if err := removeIfThere(filepath.Join(pinDir, name)); err != nil {
			return fmt.Errorf("unpin map: %w", err)
		}
	}
	return nil
}

// Close releases this load. What is attached stays attached, and pinned.
func (s *Sock) Close() error { return s.objs.Close() }
