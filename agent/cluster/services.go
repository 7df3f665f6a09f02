package cluster

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// servedSlices is the label selector of the slices that kube-proxy would serve. It excludes slices
// of headless Services, which are for DNS, and those for other proxies.
const servedSlices = "!" + corev1.IsHeadlessService + ",!" + service.ProxyNameLabel

// byService is the name of the index of slices by their Service.
const byService = "service"

// indexByService is the function of the index byService. It returns the namespace and the name of a
// slice's Service, separated by a slash.
func indexByService(o any) ([]string, error) {
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok || s.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}

	return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}, nil
}

// Keys returns the keys of all objects that may have frontends: all Services, and the node's pods
// with host ports. It returns false until all lists have been read once.
func (c *Cluster) Keys() ([]service.Key, bool) {
	if !c.synced() {
		return nil, false
	}

	services := c.services.GetStore().List()

	out := make([]service.Key, 0, len(services))
	for _, o := range services {
		s := o.(*corev1.Service)
		out = append(out, service.Key{Kind: service.KindService, Namespace: s.Namespace, Name: s.Name})
	}

	for _, o := range c.pods.GetStore().List() {
		if p := o.(*corev1.Pod); service.HasHostPorts(p) {
			out = append(out, service.Key{Kind: service.KindPod, Namespace: p.Namespace, Name: p.Name})
		}
	}

	return out, true
}

// Objects returns the pod, or the Service with its slices, of a key from the informers. Objects
// that do not exist are nil. They must not be modified.
func (c *Cluster) Objects(k service.Key) service.Objects {
	name := k.Namespace + "/" + k.Name

	if k.Kind == service.KindPod {
		pod, _ := getObject[corev1.Pod](c.pods.GetStore(), name)
		return service.Objects{Pod: pod}
	}

	svc, exists := getObject[corev1.Service](c.services.GetStore(), name)
	if !exists {
		return service.Objects{}
	}

	return service.Objects{Service: svc, Slices: c.slicesOf(name)}
}

// slicesOf returns the slices of the Service with a name of the form namespace/name.
func (c *Cluster) slicesOf(name string) []*discoveryv1.EndpointSlice {
	found, err := c.slices.GetIndexer().ByIndex(byService, name)
	if err != nil {
		panic(err) // the index was added in New
	}

	var out []*discoveryv1.EndpointSlice
	for _, o := range found {
		out = append(out, o.(*discoveryv1.EndpointSlice))
	}

	return out
}

// APIServers returns the API servers in the slices of default/kubernetes, except those inside the
// service networks.
func (c *Cluster) APIServers(services []netip.Prefix) service.ControlPlane {
	return service.APIServers(c.slicesOf(corev1.NamespaceDefault+"/kubernetes"), services)
}
