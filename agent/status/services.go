package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	dto "github.com/prometheus/client_model/go"
)

// ServiceCount is the agent's count of packets that arrived at the uplink for a port of a Service.
type ServiceCount struct {
	Name           string // namespace/name:port/protocol
	Packets, Bytes float64
}

// Services reads the counts from the agent's metrics, the only source with names.
func Services(ctx context.Context, p Paths) (map[string]ServiceCount, error) {
	if p.Metrics == "" {
		return nil, errors.New("ask the agent for Services: it serves no metrics")
	}
	code, body, err := get(ctx, p.url()+"/metrics")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d", code)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the agent for Services: %w", err)
	}
	families, err := parse(body)
	if err != nil {
		return nil, err
	}
	out := map[string]ServiceCount{}
	for _, m := range families["ovnkube_gateway_service_packets_total"].GetMetric() {
		name := serviceName(m)
		out[name] = ServiceCount{Name: name, Packets: m.GetCounter().GetValue()}
	}
	for _, m := range families["ovnkube_gateway_service_bytes_total"].GetMetric() {
		c := out[serviceName(m)]
		c.Name, c.Bytes = serviceName(m), m.GetCounter().GetValue()
		out[c.Name] = c
	}
	return out, nil
}

// Frontend is an address at which a port of a Service is reachable.
type Frontend struct {
	Address  netip.Addr
	Protocol uint8
	Port     uint16
}

// Frontends reads from the agent the Service port of each frontend. Names are
// namespace/name:port/protocol.
func Frontends(ctx context.Context, p Paths) (map[Frontend]string, error) {
	if p.Metrics == "" {
		return nil, errors.New("ask the agent for frontends: it serves no metrics")
	}
	code, body, err := get(ctx, p.url()+"/services.json")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d", code)
	}
	var list []struct {
		Frontend
		Service string
	}
	if err == nil {
		err = json.Unmarshal([]byte(body), &list)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the agent for frontends: %w", err)
	}
	out := make(map[Frontend]string, len(list))
	for _, f := range list {
		out[f.Frontend] = f.Service
	}
	return out, nil
}

func serviceName(m *dto.Metric) string {
	of := map[string]string{}
	for _, l := range m.GetLabel() {
		of[l.GetName()] = l.GetValue()
	}
	return fmt.Sprintf("%s/%s:%s/%s", of["namespace"], of["service"], of["port"], of["protocol"])
}

// url returns the agent's address.
func (p Paths) url() string {
	if p.MetricsTLS {
		return "https://" + p.Metrics
	}
	return "http://" + p.Metrics
}
