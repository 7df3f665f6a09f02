package service

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// targets is an index of the port numbers in slices, by name and protocol of the service port. The
// control plane has resolved named ports per slice. Slices with few ports are omitted, because a
// search is as fast. In slices with many ports, a search for each port of the Service would cost
// the product of both.
type targets map[*discoveryv1.EndpointSlice]map[targetName]uint16

// targetName identifies a port of a slice: a service port refers to it by both.
type targetName struct {
	name  string
	proto corev1.Protocol
}

// fewPorts is the number of ports up to which a slice is searched.
const fewPorts = 8

func newTargets(endpointSlices []*discoveryv1.EndpointSlice) targets {
	out := targets{}

	for _, s := range endpointSlices {
		if len(s.Ports) <= fewPorts {
			continue
		}

		numbers := make(map[targetName]uint16, len(s.Ports))
		for i := range s.Ports {
			name, number, ok := targetPort(&s.Ports[i])
			if _, duplicate := numbers[name]; ok && !duplicate { // as in a search, the first one counts
				numbers[name] = number
			}
		}

		out[s] = numbers
	}

	return out
}

// port returns the port number of the slice's endpoints for a service port, or false if there is
// none.
func (t targets) port(slice *discoveryv1.EndpointSlice, port Port) (uint16, bool) {
	want := targetName{port.Name, port.Protocol}
	if numbers, indexed := t[slice]; indexed {
		number, ok := numbers[want]
		return number, ok
	}

	for i := range slice.Ports {
		if name, number, ok := targetPort(&slice.Ports[i]); ok && name == want {
			return number, true
		}
	}

	return 0, false
}

// targetPort returns the name and number of a port, or false for a port without a number. Fields
// that the API server would set have their default values.
func targetPort(p *discoveryv1.EndpointPort) (name targetName, port uint16, ok bool) {
	name.proto = corev1.ProtocolTCP
	if p.Name != nil {
		name.name = *p.Name
	}

	if p.Protocol != nil {
		name.proto = *p.Protocol
	}

	if p.Port != nil {
		port = portNumber(*p.Port)
	}

	return name, port, port != 0
}
