package link

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// subscribeFilters sends the interface index of every device that loses a tc filter or a qdisc,
// until done is closed. It ignores additions: most are the agent's own, and the receiver itself
// adds filters.
func subscribeFilters(out chan<- int, done <-chan struct{}, failed func(error)) error {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_TC)
	if err != nil {
		return fmt.Errorf("subscribe to tc filters: %w", err)
	}
	go func() {
		<-done
		s.Close()
	}()
	go func() {
		for {
			msgs, _, err := s.Receive()
			if err != nil {
				select {
				case <-done:
				default:
					failed(fmt.Errorf("receive tc events: %w", err))
				}
				return
			}
			for _, m := range msgs {
				// struct tcmsg: family, padding, then the interface index
				if t := m.Header.Type; t != unix.RTM_DELTFILTER && t != unix.RTM_DELQDISC || len(m.Data) < 8 {
					continue
				}
				select {
				case out <- int(int32(binary.NativeEndian.Uint32(m.Data[4:]))):
				case <-done:
					return
				}
			}
		}
	}()
	return nil
}
