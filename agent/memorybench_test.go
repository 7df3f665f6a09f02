package agent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// BenchmarkMemory measures the resident set of an agent process and its peak, with NodePort
// Services of ten endpoints each. The kernel's memory for maps is not included.
func BenchmarkMemory(b *testing.B) {
	for _, services := range []int{10, 1000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			r := newCNIRig(b)
			createServices(b, r.cfg.RestConfig, services)
			agent := r.process()

			b.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
			r.getReady()
			// The agent is ready when its tables match the caches.
			var resident, peak float64
			for b.Loop() {
				resident, peak = memory(b, agent.Process.Pid, "VmRSS:"), memory(b, agent.Process.Pid, "VmHWM:")
			}

			b.ReportMetric(resident, "rss-MiB")
			b.ReportMetric(peak, "peak-MiB")
			b.ReportMetric(0, "ns/op") // hides the time of reading a file in /proc
		})
	}
}

// memory returns a line of /proc/<pid>/status in MiB.
func memory(b *testing.B, pid int, line string) float64 {
	b.Helper()

	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}

	_, rest, _ := strings.Cut(string(text), line)

	fields := strings.Fields(rest)
	if len(fields) < 2 || fields[1] != "kB" {
		b.Fatalf("no %s in kB:\n%s", line, text)
	}

	n, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		b.Fatal(err)
	}

	return n / 1024
}

func createServices(b *testing.B, at *rest.Config, count int) {
	b.Helper()

	fast := rest.CopyConfig(at)
	fast.QPS = -1

	client, err := kubernetes.NewForConfig(fast)
	if err != nil {
		b.Fatal(err)
	}

	var group errgroup.Group
	group.SetLimit(8)

	for i := range count {
		group.Go(func() error {
			name := fmt.Sprintf("s%d", i)

			_, err := client.CoreV1().Services("default").Create(b.Context(), &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}

			_, err = client.DiscoveryV1().EndpointSlices("default").Create(b.Context(), endpointSlice(name, i), metav1.CreateOptions{})

			return err
		})
	}

	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

func endpointSlice(service string, i int) *discoveryv1.EndpointSlice {
	port, protocol := int32(8080), corev1.ProtocolTCP

	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
	}
	for j := range 10 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.%d", 1+i>>4, i<<4&0xff|j)}})
	}

	return slice
}
