package service

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// targets maps each slice to its port numbers, by name and protocol of the service port. The
// control plane has resolved named ports per slice. Slices with few ports are omitted, because a
// search is as fast. In slices with many ports, a search for each port of the Service would cost
// the product of both.
type targets map[*discoveryv1.EndpointSlice]map[targetName]uint16

type targetName struct {
	name  string
	proto corev1.Protocol
}

const fewPorts = 8

func newTargets(slices []*discoveryv1.EndpointSlice) targets {
	out := targets{}

	for _, s := range slices {
		if len(s.Ports) <= fewPorts {
			continue
		}

		of := make(map[targetName]uint16, len(s.Ports))
		for i := range s.Ports {
			name, number, ok := targetPort(&s.Ports[i])
			if _, again := of[name]; ok && !again { // the first counts
				of[name] = number
			}
		}

		out[s] = of
	}

	return out
}

// port returns the port number of the slice's endpoints for a service port, or false if there is
// none.
func (t targets) port(slice *discoveryv1.EndpointSlice, port Port) (uint16, bool) {
	want := targetName{port.Name, port.Protocol}
	if of, many := t[slice]; many {
		number, ok := of[want]
		return number, ok
	}

	for i := range slice.Ports {
		if name, number, ok := targetPort(&slice.Ports[i]); ok && name == want {
			return number, true
		}
	}

	return 0, false
}

// targetPort returns false for a port without a number.
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
