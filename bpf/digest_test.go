package bpf

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestDigest_hasServiceFirst checks that the programs find a frontend as soon as it is in the
// table, also while many others are written with it.
func TestDigest_hasServiceFirst(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	front := func(port int) verdict.ServiceKey {
		return verdict.ServiceKey{Addr: v4.node, Proto: protoTCP, Port: uint16(port)}
	}

	const count = 8000

	all := map[verdict.ServiceKey]verdict.ServiceOwner{}
	for port := range count {
		all[front(10000+port)] = verdict.ServiceOVN
	}

	var group errgroup.Group

	done := make(chan struct{})
	early := 0 // lookups while not all were written

	group.Go(func() error {
		for port := 10000; ; port = 10000 + (port-9999)%count {
			select {
			case <-done:
				return nil
			default:
			}

			var owner uint8
			if g.objs.Services.Lookup(serviceCell(front(port)), &owner) != nil {
				continue
			}

			early++

			var words [1024]uint64
			if err := g.digest.ports.Get(&words); err != nil {
				return err
			}

			if words[port/64]&(1<<(port%64)) == 0 {
				return fmt.Errorf("port %d is in the table and not in the digest", port)
			}
		}
	})

	if _, err := g.UpdateServices(all, nil); err != nil {
		t.Fatal(err)
	}

	close(done)

	if err := group.Wait(); err != nil {
		t.Error(err)
	}

	t.Logf("%d lookups found an entry meanwhile", early)

	if early == 0 {
		t.Error("no lookup found an entry meanwhile: this test has tested nothing")
	}

	var gone []verdict.ServiceKey
	for k := range all {
		gone = append(gone, k)
	}

	if _, err := g.UpdateServices(nil, gone); err != nil {
		t.Fatal(err)
	}

	var words [1024]uint64
	if err := g.digest.ports.Get(&words); err != nil {
		t.Fatal(err)
	}

	for i, w := range words {
		if w != 0 && i >= 10000/64 && i < (10000+count)/64 {
			t.Errorf("ports from %d are in the digest without an entry", i*64)
		}
	}
}
