package agent

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/cni"
)

// testReaddress: an interface follows its pod's changed annotation, and the next CHECK reports it
// to the runtime. A change that is reverted soon is ignored.
func testReaddress(t *testing.T, r *cniRig) {
	pod, list := r.createPod("readdress"), r.network("1.1.0", "")
	was := r.give(pod, 20)

	s := r.sandbox(pod, "c-readdress")
	if _, err := r.runtime("cache").AddNetworkList(t.Context(), list, s.RuntimeConf); err != nil {
		t.Fatal(err)
	}

	has := func(s sandbox, address, mac, linkLocal string) error {
		inside, err := exec.Command("nsenter", "--net="+s.NetNS, "ip", "-o", "addr", "show", "dev", "eth0").Output()
		if err != nil {
			return err
		}

		link, err := exec.Command("nsenter", "--net="+s.NetNS, "ip", "-o", "link", "show", "dev", "eth0").Output()
		if err != nil {
			return err
		}

		routes, err := exec.Command("nsenter", "--net="+s.NetNS, "ip", "route", "show", "default").Output()
		if err != nil {
			return err
		}

		ids, err := exec.Command("ovs-vsctl", "--db="+r.sw.Address, "--no-wait", "get", "Interface", s.host(), "external_ids").Output()
		if err != nil {
			return err
		}

		plain, _, _ := strings.Cut(address, "/")

		all := string(inside) + string(link) + string(routes) + string(ids)
		if strings.Count(string(inside), "inet ") != 1 || strings.Count(string(inside), "inet6 ") != 1 || !strings.Contains(string(inside), linkLocal) || !strings.Contains(string(inside), address) || !strings.Contains(string(link), mac) ||
			!strings.Contains(string(routes), "via 10.244.1.1 dev eth0") || !strings.Contains(string(ids), `"`+mac+`"`) || !strings.Contains(string(ids), plain) {
			return fmt.Errorf("want %s and %s, have %s", address, mac, all)
		}

		return nil
	}

	testnode.Eventually(t, "the interface has the addresses of ADD", func() error { return has(s, was, "0a:58:0a:f4:01:14", "fe80::858:aff:fef4:114/64") })

	now := r.give(pod, 21)

	testnode.Eventually(t, "the interface follows", func() error { return has(s, now, "0a:58:0a:f4:01:15", "fe80::858:aff:fef4:115/64") })
	testnode.Eventually(t, "the pod's event", func() error {
		events, err := r.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + eventReaddressed})
		if err == nil && len(events.Items) == 0 {
			err = fmt.Errorf("no event %s", eventReaddressed)
		}

		return err
	})
	wantCode(t, r.runtime("cache").CheckNetworkList(t.Context(), list, s.RuntimeConf), cni.CodeCheckFailed, now)

	// The router's address and MAC address are not given to a pod. Two later changes of another pod
	// are followed.
	other := r.createPod("other")
	r.give(other, 30)

	o := r.sandbox(other, "c-other")
	if _, err := r.runtime("cache").AddNetworkList(t.Context(), list, o.RuntimeConf); err != nil {
		t.Fatal(err)
	}

	r.give(pod, 1)

	for _, host := range []byte{31, 32} {
		address := r.give(other, host)

		testnode.Eventually(t, "the other interface follows", func() error {
			return has(o, address, fmt.Sprintf("0a:58:0a:f4:01:%02x", host), fmt.Sprintf("fe80::858:aff:fef4:1%02x/64", host))
		})
	}

	if err := has(s, now, "0a:58:0a:f4:01:15", "fe80::858:aff:fef4:115/64"); err != nil {
		t.Errorf("after the router's address in the annotation: %v", err)
	}

	if err := r.runtime("cache").DelNetworkList(t.Context(), list, o.RuntimeConf); err != nil {
		t.Fatal(err)
	}

	if err := r.runtime("cache").DelNetworkList(t.Context(), list, s.RuntimeConf); err != nil {
		t.Fatal(err)
	}
	// The annotation changes during ADD: the ADD fails, and its repetition returns the new
	// addresses.
	r.give(pod, 20)
	again := r.sandbox(pod, "c-readdress-again")
	r.standin.pause()
	answered := r.add(t.Context(), list, again)
	r.awaitPort(again)
	r.give(pod, 22)
	marker := r.createPod("marker") // its annotation arrives after the first one, by the same watch
	later := r.sandbox(marker, "c-marker")
	marked := r.add(t.Context(), list, later)
	r.give(marker, 23)
	r.awaitPort(later)
	r.standin.resume()
	wantCode(t, <-answered, types.ErrTryAgainLater, "10.244.1.22")

	if err := <-marked; err != nil {
		t.Error(err)
	}

	if err := r.runtime("cache").DelNetworkList(t.Context(), list, later.RuntimeConf); err != nil {
		t.Fatal(err)
	}

	r.mustHold()
}
