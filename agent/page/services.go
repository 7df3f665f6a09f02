package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Frontend is an address of a Service port in /services.json.
type Frontend struct {
	Address  netip.Addr `json:"address"`
	Protocol uint8      `json:"protocol"` // number of the IP protocol
	Port     uint16     `json:"port"`
	Service  string     `json:"service"` // namespace/name:port/protocol
}

// protocols are the protocols of Services.
var protocols = map[uint8]string{6: "TCP", 17: "UDP", 132: "SCTP"}

// Frontends returns the frontends, sorted.
func Frontends(of map[bpf.ServiceKey]bpf.ServicePort) []Frontend {
	out := make([]Frontend, 0, len(of))
	for k, p := range of {
		out = append(out, Frontend{k.Addr, k.Proto, k.Port, fmt.Sprintf("%s/%s:%d/%s", p.Namespace, p.Name, p.Port, protocols[p.Proto])})
	}
	slices.SortFunc(out, func(a, b Frontend) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return out
}

func (p *Page) services(w http.ResponseWriter, _ *http.Request) {
	out := []Frontend{}
	if source := p.source.Load(); source != nil && source.Frontends != nil {
		out = Frontends(source.Frontends())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(out) // fails only if the client has gone
}
