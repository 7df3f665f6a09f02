package netns_test

import (
	"fmt"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

func TestNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}

	name := fmt.Sprintf("nstest-%d", os.Getpid())
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}

	defer func() {
		if err := netns.Delete(name); err != nil {
			t.Error(err)
		}
	}()

	if err := netns.Create(name); err == nil {
		t.Error("a second one of the same name was made")
	}

	own, err := netns.Identify("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}

	var (
		inside netns.ID
		links  []net.Interface
	)

	err = netns.Do(name, func() (err error) {
		if inside, err = netns.Identify("/proc/thread-self/ns/net"); err == nil {
			links, err = net.Interfaces()
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	if named, err := netns.Identify(netns.Path(name)); err != nil || named != inside || inside == own {
		t.Errorf("inside is %v, the name's is %v (%v), the caller's %v", inside, named, err, own)
	}

	if len(links) != 1 || links[0].Name != "lo" {
		t.Errorf("links inside: %v, want lo alone", links)
	}

	if names, err := netns.List(name); err != nil || !slices.Equal(names, []string{name}) {
		t.Errorf("List: %v, %v", names, err)
	}
	// Often enough that one of the calls meets the main thread.
	for range 100 {
		if err := netns.Do(name, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}

	if now, err := netns.Identify("/proc/self/ns/net"); err != nil || now != own {
		t.Errorf("main thread is in %v, was in %v (%v)", now, own, err)
	}

	if err := netns.Delete(name); err != nil {
		t.Fatal(err)
	}

	if names, err := netns.List(name); err != nil || len(names) > 0 {
		t.Errorf("List after Delete: %v, %v", names, err)
	}
}
