package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file makes raw system calls on prepared memory. All its instructions are counted, so it does
// not allocate, yield to Go's scheduler, or check more errors than necessary.

// address is a socket address in the kernel's format: struct sockaddr_in (ip(7)) or sockaddr_in6
// (ipv6(7)). The family is in native byte order, the port in network byte order:
//
//	sockaddr_in   family 2, port 2, address 4, zero 8               16 bytes
//	sockaddr_in6  family 2, port 2, flowinfo 4, address 16, scope 4  28 bytes
type address struct {
	raw [28]byte
	len uint32
}

func newAddress(ip string, port uint16) address {
	var a address

	addr := netip.MustParseAddr(ip)

	binary.BigEndian.PutUint16(a.raw[2:], port)

	if addr.Is4() {
		binary.NativeEndian.PutUint16(a.raw[:], unix.AF_INET)
		copy(a.raw[4:], addr.AsSlice())
		a.len = 16

		return a
	}

	binary.NativeEndian.PutUint16(a.raw[:], unix.AF_INET6)
	copy(a.raw[8:], addr.AsSlice())
	a.len = 28

	return a
}

// plus returns the address with n added to the last byte of its IP address.
func (a address) plus(n int) address {
	last := 7
	if a.family() == unix.AF_INET6 {
		last = 23
	}

	a.raw[last] += byte(n)

	return a
}

func (a *address) family() int { return int(binary.NativeEndian.Uint16(a.raw[:])) }

// socket opens a socket in the network namespace. Reads time out after two seconds of guest time.
func socket(netns string, family, kind, proto int) (int, error) {
	fd := -1

	err := inNetns(netns, func() (err error) {
		fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("open socket: %w", err)
	}

	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set receive timeout: %w", err)
	}

	return fd, nil
}

func bind(fd int, a *address) error {
	return call("bind", unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), uintptr(a.len))
}

func connect(fd int, a *address) error {
	return call("connect", unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), uintptr(a.len))
}

// call makes a system call with three arguments. what is the name of the call, for errors.
func call(what string, nr, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(nr, a, b, c); errno != 0 {
		return fmt.Errorf("%s: %w", what, errno)
	}

	return nil
}

// accept takes the next connection of a listening socket.
func accept(fd int) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, fmt.Errorf("accept: %w", errno)
	}

	return int(n), nil
}

// send sends to the peer of a connected socket, or to a.
func send(fd int, data []byte, a *address) error {
	var to, tolen uintptr
	if a != nil {
		to, tolen = uintptr(unsafe.Pointer(&a.raw)), uintptr(a.len)
	}

	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), 0, to, tolen)
	if errno != 0 {
		return fmt.Errorf("send: %w", errno)
	}

	if int(n) != len(data) {
		return fmt.Errorf("send: %d of %d bytes", n, len(data))
	}

	return nil
}

// receive receives at least one byte into data; from gets the sender, if not nil.
func receive(fd int, data []byte, from *address) error {
	var at, atlen uintptr

	if from != nil {
		from.len = uint32(len(from.raw))
		at, atlen = uintptr(unsafe.Pointer(&from.raw)), uintptr(unsafe.Pointer(&from.len))
	}

	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), 0, at, atlen)
	if errno != 0 {
		return fmt.Errorf("receive: %w", errno)
	}

	if n == 0 {
		return fmt.Errorf("receive: %w", io.EOF)
	}

	return nil
}

// receiveSome is like receive, but returns the number of bytes.
func receiveSome(fd int, data []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), 0, 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("receive: %w", errno)
	}

	if n == 0 {
		return 0, fmt.Errorf("receive: %w", io.EOF)
	}

	return int(n), nil
}

func closeSocket(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }
