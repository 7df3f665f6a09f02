package bpf

import (
	"encoding/binary"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// outcome returns the result of a reason in the layout.
func (r *rig) outcome(reason verdict.Reason) result {
	switch connected := r.node.Config.Connected; r.layout {
	case verdict.Bridged:
		return bridgedOutcome(reason, connected)
	case verdict.Dedicated:
		if reason.Verdict() == verdict.Drop && (connected || arrives(reason)) {
			return result{ret: retDrop}
		}

		return result{ret: retNext}
	}

	switch reason.Verdict() {
	case verdict.OVN, verdict.Out:
		return result{ret: retRedirect}
	case verdict.Drop:
		return result{ret: retDrop}
	}

	return result{ret: retNext}
}

// arrives reports whether the reason drops packets from the wire even if an interface is missing.
func arrives(reason verdict.Reason) bool {
	return reason.Direction() == verdict.FromWire
}

func bridgedOutcome(reason verdict.Reason, connected bool) result {
	const mark, hostSent = 0x6f76, 0x6873

	dir := reason.Direction()
	switch v := reason.Verdict(); {
	case dir == verdict.FromHost && v == verdict.OVN:
		return result{ret: retNext, mark: mark}
	case v == verdict.Drop && dir == verdict.FromWire:
		return result{ret: retDrop}
	case !connected:
		return result{ret: retNext}
	case dir == verdict.FromHost: // the program at the uplink's egress restores the packet's mark
		return result{ret: retRedirect, mark: hostSent}
	case v == verdict.Host:
		return result{ret: retRedirect}
	case v == verdict.Drop:
		return result{ret: retDrop}
	case v == verdict.Out:
		return result{ret: retNext}
	}

	return result{ret: retNext, mark: mark}
}

func (r *rig) learnedNS(t testing.TB) map[verdict.NSKey]bool {
	t.Helper()

	set := make(map[verdict.NSKey]bool)

	err := eachEntry(r.g.objs.Ns, func(k gatewayNsKey, _ gatewaySeen) {
		set[verdict.NSKey{Remote: addrOf(k.Remote.W), Proto: k.Proto, ID: bePort(k.Id)}] = true
	})
	if err != nil {
		t.Fatal(err)
	}

	return set
}

func (r *rig) learnedFrags(t testing.TB) map[verdict.FragKey]verdict.Verdict {
	t.Helper()

	set := make(map[verdict.FragKey]verdict.Verdict)

	err := eachEntry(r.g.objs.Frags, func(k gatewayFragKey, f gatewayFragSeen) {
		id := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, k.Id))
		if addrOf(k.Src.W).Is4() {
			id >>= 16
		}

		set[verdict.FragKey{Src: addrOf(k.Src.W), Dst: addrOf(k.Dst.W), Proto: k.Proto, ID: id}] = fragmentOwners[f.Owner]
	})
	if err != nil {
		t.Fatal(err)
	}

	return set
}

func (r *rig) learnedFlows(t testing.TB) map[verdict.FlowKey]bool {
	t.Helper()

	set := make(map[verdict.FlowKey]bool)

	err := eachEntry(r.g.objs.Takeover, func(k gatewayFlowKey, _ gatewaySeen) { set[flowOf(k)] = true })
	if err != nil {
		t.Fatal(err)
	}

	return set
}
