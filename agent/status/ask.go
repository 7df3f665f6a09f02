package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	dto "github.com/prometheus/client_model/go"

	"github.com/ovn-ebpf/ovn-ebpf/agent/page"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// The exported functions of this file read counters and names from the running agent, for commands
// such as "ovnkube gateway top".

// Counters reads from the agent the decisions of programs or flows since its start.
func Counters(ctx context.Context, p Paths) ([]bpf.Counter, error) {
	body, err := p.ask(ctx, "counters", "/status.json")
	if err != nil {
		return nil, err
	}

	var s page.State

	err = json.Unmarshal([]byte(body), &s)
	switch {
	case err != nil:
	case s.Problem != "":
		err = errors.New(s.Problem)
	case len(s.Counters) == 0:
		err = errors.New("it is starting")
	}

	if err != nil {
		return nil, fmt.Errorf("ask the agent for counters: %w", err)
	}

	var out []bpf.Counter
	for _, c := range s.Counters {
		out = append(out, bpf.Counter(c))
	}

	return out, nil
}

// ServiceCount is the agent's count of packets and bytes that arrived at the uplink for a port of a
// Service.
type ServiceCount struct {
	Name           string // namespace/name:port/protocol
	Packets, Bytes float64
}

// Services reads the counts of Service ports, by name, from the agent's metrics. The maps of the
// programs have no names.
func Services(ctx context.Context, p Paths) (map[string]ServiceCount, error) {
	body, err := p.ask(ctx, "Services", "/metrics")
	if err != nil {
		return nil, err
	}

	families, err := parseMetrics(body)
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
	Protocol uint8 // number of the IP protocol
	Port     uint16
}

// Frontends reads from the agent the Service port of each frontend. Names are
// namespace/name:port/protocol.
func Frontends(ctx context.Context, p Paths) (map[Frontend]string, error) {
	body, err := p.ask(ctx, "frontends", "/services.json")
	if err != nil {
		return nil, err
	}

	var list []struct {
		Frontend
		Service string
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		return nil, fmt.Errorf("ask the agent for frontends: %w", err)
	}

	out := make(map[Frontend]string, len(list))
	for _, f := range list {
		out[f.Frontend] = f.Service
	}

	return out, nil
}

// serviceName returns namespace/name:port/protocol from the labels of a metric.
func serviceName(m *dto.Metric) string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}

	return fmt.Sprintf("%s/%s:%s/%s",
		labels["namespace"], labels["service"], labels["port"], labels["protocol"])
}

// ask reads a page of the agent. what is the content of the page, for errors.
func (p Paths) ask(ctx context.Context, what, page string) (body string, err error) {
	if p.Metrics == "" {
		return "", fmt.Errorf("ask the agent for %s: it serves no metrics", what)
	}

	code, body, err := get(ctx, p.url()+page)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d", code)
	}

	if err != nil {
		return "", fmt.Errorf("ask the agent for %s: %w", what, err)
	}

	return body, nil
}

// url returns the agent's address.
func (p Paths) url() string {
	if p.MetricsTLS {
		return "https://" + p.Metrics
	}

	return "http://" + p.Metrics
}
