package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/metric"
)

// Prefixes of the names of pods' metrics, like cadvisor's container_network_receive and _transmit.
const (
	podReceived = "ovnkube_node_pod_network_receive"
	podSent     = "ovnkube_node_pod_network_transmit"
)

// putPods sends the traffic of pods. It reuses the labels of the last scrape.
func (c *Collector) putPods(put putter, ch chan<- prometheus.Metric) {
	if c.s.Pods == nil {
		return
	}

	traffic, uncounted, err := c.s.Pods()
	if err != nil {
		c.s.Log.Debug("no counters of pods", "error", err)
		return
	}

	put("ovnkube_node_uncounted_pods", float64(uncounted))

	c.mu.Lock()
	defer c.mu.Unlock()

	lastLabels := c.pods
	c.pods = make(map[podnet.Owner]metric.Labels, len(traffic))

	for _, t := range traffic {
		labels := lastLabels[t.Owner]
		if labels == nil {
			labels = c.set.Labels(podReceived+"_packets_total", t.Namespace, t.Pod, t.Interface)
		}

		c.pods[t.Owner] = labels
		c.set.PutLabeled(ch, podReceived+"_packets_total", float64(t.Received.Packets), labels)
		c.set.PutLabeled(ch, podReceived+"_bytes_total", float64(t.Received.Bytes), labels)
		c.set.PutLabeled(ch, podReceived+"_packets_dropped_total", float64(t.Received.Dropped), labels)
		c.set.PutLabeled(ch, podSent+"_packets_total", float64(t.Sent.Packets), labels)
		c.set.PutLabeled(ch, podSent+"_bytes_total", float64(t.Sent.Bytes), labels)
		c.set.PutLabeled(ch, podSent+"_packets_dropped_total", float64(t.Sent.Dropped), labels)
	}
}
