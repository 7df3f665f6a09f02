package campaign

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab/netns"
)

// proxied are the ports of the API server and of OVN's databases, by server.
var proxied = map[string]int{"API server": 6443, "Northbound": 6641, "Southbound": 6642}

// proxyOffset is the difference between a port and its proxy's port.
const proxyOffset = 10000

// proxy is a transparent proxy of a server. It can delay traffic, or hold connections open without
// carrying data.
type proxy struct {
	ns   string
	port int

	mu    sync.Mutex // guards the following fields
	delay time.Duration
	hole  bool
	freed chan struct{} // closed when traffic flows
}

// startProxies redirects traffic to the servers' ports in the fabric to proxies. Existing
// connections break, as the kernel starts to translate them midway.
func startProxies(ctx context.Context, l *lab.Lab) (map[string]*proxy, error) {
	ns, err := l.Netns("central")
	if err != nil {
		return nil, err
	}

	out := map[string]*proxy{}

	for _, chain := range []string{"prerouting", "output"} {
		rules := fmt.Sprintf("add table ip campaign; add chain ip campaign %s { type nat hook %s priority -100; }", chain, chain)
		for _, port := range proxied {
			rules += fmt.Sprintf("; add rule ip campaign %s ip daddr %s tcp dport %d redirect to :%d", chain, lab.CentralIP4, port, port+proxyOffset)
		}

		if out, err := l.Exec(ctx, "central", "nft", rules); err != nil {
			return nil, fmt.Errorf("redirect to proxies: %w: %s", err, out)
		}
	}

	for name, port := range proxied {
		p := &proxy{ns: ns, port: port}
		if err := p.listen(ctx); err != nil {
			return nil, err
		}

		out[name] = p
	}

	return out, nil
}

func (p *proxy) listen(ctx context.Context) error {
	var l net.Listener

	err := netns.Do(p.ns, func() (err error) {
		l, err = net.Listen("tcp4", ":"+strconv.Itoa(p.port+proxyOffset))
		return err
	})
	if err != nil {
		return fmt.Errorf("start proxy: %w", err)
	}

	context.AfterFunc(ctx, func() { l.Close() })

	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			go p.serve(ctx, c)
		}
	}()

	return nil
}

// serve proxies one connection. Both directions have the same delay.
func (p *proxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()

	if !p.wait(ctx) {
		return
	}

	server, err := netns.Dialer(p.ns)(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(p.port))
	if err != nil {
		return
	}
	defer server.Close()

	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()

	go func() {
		p.copyStream(ctx, server, client)
		server.Close()
	}()

	p.copyStream(ctx, client, server)
}

func (p *proxy) copyStream(ctx context.Context, to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)

		if !p.wait(ctx) {
			return
		}

		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}

		if err != nil {
			return
		}
	}
}

// wait blocks while traffic is held back. It returns false when ctx ends.
func (p *proxy) wait(ctx context.Context) bool {
	p.mu.Lock()
	delay, hole, freed := p.delay, p.hole, p.freed
	p.mu.Unlock()

	switch {
	case hole:
		select {
		case <-freed:
		case <-ctx.Done():
		}
	case delay > 0:
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}

	return ctx.Err() == nil
}

// slow delays all traffic, or with hole holds it back. The returned function restores traffic and
// releases what was held back.
func (p *proxy) slow(delay time.Duration, hole bool) (end func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.delay, p.hole, p.freed = delay, hole, make(chan struct{})

	return func() error {
		p.mu.Lock()
		defer p.mu.Unlock()

		p.delay, p.hole = 0, false
		close(p.freed)

		return nil
	}
}
