package link

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNotFound is returned (wrapped) when a device does not exist.
var ErrNotFound = errors.New("no such device")

// Link is the current state of a network device.
type Link struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	MTU   int
	Up    bool // administratively
	Kind  string

	Master      int  // index of the bridge or bond that the device is a port of, or 0
	Promiscuous bool // set by SetPromiscuous or by an administrator
}

// Get returns the device, or ErrNotFound.
func Get(name string) (Link, error) {
	l, err := find(name)
	if err != nil {
		return Link{}, err
	}

	return linkOf(l), nil
}

// List returns all devices of the namespace.
func List() ([]Link, error) {
	links, err := retry(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}

	out := make([]Link, len(links))
	for i, l := range links {
		out[i] = linkOf(l)
	}

	return out, nil
}

// linkOf returns the state of a device of netlink.
func linkOf(l netlink.Link) Link {
	a := l.Attrs()

	return Link{
		Name:        a.Name,
		Index:       a.Index,
		MAC:         a.HardwareAddr,
		MTU:         a.MTU,
		Up:          a.Flags&net.FlagUp != 0,
		Kind:        l.Type(),
		Master:      a.MasterIndex,
		Promiscuous: a.RawFlags&unix.IFF_PROMISC != 0,
	}
}

// SetPromiscuous makes a device receive all frames, or only those for its own addresses.
func SetPromiscuous(name string, on bool) error {
	l, err := find(name)
	if err != nil {
		return err
	}

	set := netlink.SetPromiscOff
	if on {
		set = netlink.SetPromiscOn
	}

	if err := set(l); err != nil {
		return fmt.Errorf("set promiscuous mode of %s to %t: %w", name, on, err)
	}

	return nil
}

// Sent returns the device's transmit counters. The driver decides whether a packet that the device
// segments counts as one or many.
func Sent(name string) (packets, bytes uint64, err error) {
	l, err := find(name)
	if err != nil {
		return 0, 0, err
	}

	s := l.Attrs().Statistics
	if s == nil {
		return 0, 0, fmt.Errorf("read device %s: it has no statistics", name)
	}

	return s.TxPackets, s.TxBytes, nil
}

// find returns the device, or ErrNotFound (wrapped).
func find(name string) (netlink.Link, error) {
	l, err := netlink.LinkByName(name)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return nil, fmt.Errorf("device %s: %w", name, ErrNotFound)
	}

	if err != nil {
		return nil, fmt.Errorf("read device %s: %w", name, err)
	}

	return l, nil
}

// SetUp sets the device up.
func SetUp(name string) error {
	l, err := find(name)
	if err != nil {
		return err
	}

	if l.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}

	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set device %s up: %w", name, err)
	}

	return nil
}

// SetDown sets the device down. A missing device is not an error.
func SetDown(name string) error {
	l, err := find(name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}

	if err != nil {
		return err
	}

	if err := netlink.LinkSetDown(l); err != nil {
		return fmt.Errorf("set device %s down: %w", name, err)
	}

	return nil
}

// Delete removes the device. A missing device is not an error.
func Delete(name string) error {
	l, err := find(name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}

	if err != nil {
		return err
	}

	err = netlink.LinkDel(l)
	if err != nil && !errors.Is(err, unix.ENODEV) { // it may go at the same time, with a pod's namespace
		return fmt.Errorf("delete device %s: %w", name, err)
	}

	return nil
}

// HasGenericFamily reports whether the kernel has the generic netlink family.
func HasGenericFamily(name string) bool {
	_, err := netlink.GenlFamilyGet(name)
	return err == nil
}
