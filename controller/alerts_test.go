package controller_test

import (
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/test/prometheus"
)

// A real Prometheus that scrapes two real controllers has no alert of them while one leads, and
// notices that both have crashed: their series are gone then.
func TestAllControllersDown(t *testing.T) {
	w := newWorld(t)
	replicas := map[string]*replicaProcess{}

	var targets []prometheus.Target

	for _, name := range []string{"one", "two"} {
		replicas[name] = startProcess(t, w, name, 3*time.Second)
		targets = append(targets, prometheus.Target{Job: "ovn-ebpf-controller", Instance: name, URL: "http://" + replicas[name].address})
	}

	for _, r := range replicas {
		r.waitReady()
	}

	server := prometheus.Start(t, targets...)
	of := func(alert string) func() bool {
		return func() bool { return server.Alerts(t)[alert] > 0 }
	}

	nbtest.Eventually(t, "both are scraped, and one leads", func() bool {
		return server.Has(t, `count(up{job="ovn-ebpf-controller"} == 1) == 2 and on () sum(ovnkube_controller_leader) == 1`)
	})

	quiet := []string{"OVNEBPFNoLeader", "OVNEBPFControllerDown", "OVNEBPFControllerMetricsMissing"}

	nbtest.Eventually(t, "no alert of controllers", func() bool {
		alerts := server.Alerts(t)
		for _, a := range quiet {
			if alerts[a] > 0 {
				return false
			}
		}

		return true
	})

	for _, r := range replicas {
		r.kill()
	}

	nbtest.Eventually(t, "the alert that there is no leader", of("OVNEBPFNoLeader"))
	nbtest.Eventually(t, "an alert for each replica", func() bool { return server.Alerts(t)["OVNEBPFControllerDown"] == len(replicas) })
}
