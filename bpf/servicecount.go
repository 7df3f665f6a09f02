package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// ServicePort is a port of a Service, with the Service's own port number. The zero value means
// none.
type ServicePort struct {
	Namespace, Name string
	Proto           uint8
	Port            uint16
}

// ServiceCount counts the packets that arrived at the uplink for a Service port since the port got
// its cell. Later fragments are not counted, because they have no port.
type ServiceCount struct {
	ServicePort
	Packets, Bytes uint64
}

// serviceCounts assigns cells of the array service_counts to Service ports. All frontends of a
// port, such as its NodePort at several addresses, share one cell: service_slots leads from a
// frontend to the index of its cell. While all cells are in use, the frontends of further ports
// wait in uncounted.
type serviceCounts struct {
	slots, counts *ebpf.Map // service_slots, service_counts
	max           int       // number of cells; 0: nothing is counted

	mu        sync.Mutex                         // guards the fields below
	front     map[verdict.ServiceKey]ServicePort // counted frontends
	ports     map[ServicePort]*serviceSlot       // their ports
	free      []uint32                           // released cells
	next      uint32                             // the first cell that was never used
	uncounted map[verdict.ServiceKey]ServicePort // frontends whose port has no cell
}

// serviceSlot is the cell of a Service port.
type serviceSlot struct {
	index  uint32
	fronts int // number of frontends that count in it
}

func newServiceCounts(slots, counts *ebpf.Map, limit int) *serviceCounts {
	return &serviceCounts{
		slots:     slots,
		counts:    counts,
		max:       limit,
		front:     map[verdict.ServiceKey]ServicePort{},
		ports:     map[ServicePort]*serviceSlot{},
		uncounted: map[verdict.ServiceKey]ServicePort{},
	}
}

// CountServices sets the Service port of frontends; the zero ServicePort removes a frontend.
// Frontends not in changes stay. A port's cell is released with its last frontend. Ports beyond
// Options.CountServices are not counted.
func (g *Gateway) CountServices(changes map[verdict.ServiceKey]ServicePort) error {
	c := g.counts
	if c.max <= 0 {
		return nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	var errs []error

	// All releases come first, because they may make room for other ports.
	for k, port := range changes {
		if c.front[k] != port {
			errs = append(errs, c.release(k))
		}

		delete(c.uncounted, k)
	}

	for k, port := range changes {
		if port != (ServicePort{}) && c.front[k] != port {
			errs = append(errs, c.assign(k, port))
		}
	}

	for k, port := range maps.Clone(c.uncounted) { // frontends of earlier calls
		if c.ports[port] != nil || len(c.free) > 0 {
			delete(c.uncounted, k)
			errs = append(errs, c.assign(k, port))
		}
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("count services: %w", err)
	}

	return nil
}

// SyncServiceCounts sets the frontends to exactly those of want, as CountServices does.
func (g *Gateway) SyncServiceCounts(want map[verdict.ServiceKey]ServicePort) error {
	changes := maps.Clone(want)
	c := g.counts
	c.mu.Lock()
	for _, have := range []map[verdict.ServiceKey]ServicePort{c.front, c.uncounted} {
		for k := range have {
			if _, ok := want[k]; !ok {
				changes[k] = ServicePort{}
			}
		}
	}
	c.mu.Unlock()

	return g.CountServices(changes)
}

// release removes a frontend. If it was the last one of its port, the cell is free.
func (c *serviceCounts) release(k verdict.ServiceKey) error {
	port, ok := c.front[k]
	if !ok {
		return nil
	}

	if err := c.slots.Delete(serviceCell(k)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}

	delete(c.front, k)

	s := c.ports[port]
	if s.fronts--; s.fronts > 0 {
		return nil
	}

	delete(c.ports, port)
	c.free = append(c.free, s.index)

	return nil
}

// assign makes a frontend count in its port's cell. If the port has no cell, it gets one whose
// counts are zero. Without room, the frontend is uncounted, which is not an error.
func (c *serviceCounts) assign(k verdict.ServiceKey, port ServicePort) error {
	s := c.ports[port]
	if s == nil {
		if s = c.takeCell(); s == nil {
			c.uncounted[k] = port
			return nil
		}

		if err := c.counts.Put(s.index, make([]gatewayCell, ebpf.MustPossibleCPU())); err != nil {
			c.free = append(c.free, s.index)
			return err
		}

		c.ports[port] = s
	}

	err := c.slots.Put(serviceCell(k), s.index)
	if err != nil && s.fronts == 0 { // no frontend of the port has room
		delete(c.ports, port)
		c.free = append(c.free, s.index)
	}

	if isFull(err) {
		c.uncounted[k] = port
		return nil
	}

	if err == nil {
		s.fronts++
		c.front[k] = port
	}

	return err
}

// takeCell returns a cell that no port has, or nil if there is none.
func (c *serviceCounts) takeCell() *serviceSlot {
	if n := len(c.free); n > 0 {
		s := &serviceSlot{index: c.free[n-1]}
		c.free = c.free[:n-1]

		return s
	}

	if int(c.next) == c.max {
		return nil
	}

	c.next++

	return &serviceSlot{index: c.next - 1}
}

// ServiceCounts returns the counts, sorted, and the number of Service ports without a cell.
func (g *Gateway) ServiceCounts() (counts []ServiceCount, uncounted int, err error) {
	c := g.counts
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.next == 0 {
		return nil, 0, nil
	}

	cells, err := readCells(c.counts, int(c.next))
	if err != nil {
		return nil, 0, fmt.Errorf("read counts of services: %w", err)
	}

	for port, s := range c.ports {
		n := ServiceCount{ServicePort: port}
		for _, cell := range cells[s.index] {
			n.Packets += cell.Packets
			n.Bytes += cell.Bytes
		}

		counts = append(counts, n)
	}

	slices.SortFunc(counts, func(a, b ServiceCount) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.Proto, b.Proto))
	})

	withoutCell := map[ServicePort]bool{}
	for _, port := range c.uncounted {
		withoutCell[port] = true
	}

	return counts, len(withoutCell), nil
}

// readCells returns the first n cells of a per-CPU array. Each has a value for each CPU.
func readCells(m *ebpf.Map, n int) ([][]gatewayCell, error) {
	cpus := ebpf.MustPossibleCPU()
	keys, flat := make([]uint32, n), make([]gatewayCell, n*cpus)

	var cursor ebpf.MapBatchCursor

	got, err := m.BatchLookup(&cursor, keys, flat, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // ErrKeyNotExist: the end of the array
		return nil, err
	}

	if got != n {
		return nil, fmt.Errorf("%d of %d cells", got, n)
	}

	out := make([][]gatewayCell, n)
	for i, k := range keys {
		out[k] = flat[i*cpus : (i+1)*cpus]
	}

	return out, nil
}

// Frontends returns the Service port of every frontend, including those without a cell.
func (g *Gateway) Frontends() map[verdict.ServiceKey]ServicePort {
	c := g.counts
	c.mu.Lock()
	defer c.mu.Unlock()

	out := maps.Clone(c.front)
	maps.Copy(out, c.uncounted)

	return out
}
