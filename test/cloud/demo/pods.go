package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serverPort is the TCP and UDP port of all servers.
const serverPort = 8000

// pod is a pod with a server, on a VM.
type pod struct{ name, vm string }

// running is a pod that runs.
type running struct {
	address netip.Addr
	vm      string
}

func host(pod string) string { return "pod:default/" + pod }

// startServers starts a server on each host that is no pod.
func (d *cloudDemo) startServers(ctx context.Context) error {
	address := fmt.Sprintf(":%d", serverPort)
	for _, on := range []string{"vm1", "vm2", "plain", "ext"} {
		if _, err := d.Serve(ctx, on, "serve-"+on, "-name", on, "-tcp", address, "-udp", address); err != nil {
			return err
		}
	}

	return nil
}

// startPods creates pods and waits until their servers listen.
func (d *cloudDemo) startPods(ctx context.Context, pods ...pod) error {
	client, err := d.Kubernetes()
	if err != nil {
		return err
	}

	all := client.CoreV1().Pods(metav1.NamespaceDefault)
	for _, p := range pods {
		if _, err := all.Create(ctx, p.object(d.bin), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %s: %w", p.name, err)
		}
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	for _, p := range pods {
		if err := d.awaitPod(ctx, p); err != nil {
			return fmt.Errorf("wait for pod %s: %w", p.name, err)
		}
	}

	return nil
}

// awaitPod waits until the pod runs and its server listens.
func (d *cloudDemo) awaitPod(ctx context.Context, p pod) error {
	client, err := d.Kubernetes()
	if err != nil {
		return err
	}

	for {
		object, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		if object.Status.Phase == corev1.PodRunning {
			sandbox := d.Sandbox(object)

			server := netip.AddrPortFrom(sandbox.IP4(), serverPort)
			if _, err = d.Traffic(ctx, host(p.name), "tcp", server.String()); err == nil {
				d.pods[p.name] = running{sandbox.IP4(), p.vm}
				break
			}
		}

		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}

	// The kernel announces its IPv6 addresses at any time, which the programs count.
	_, err = d.Exec(ctx, host(p.name), "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6")

	return err
}

func (p pod) object(bin string) *corev1.Pod {
	no, now := false, int64(0)
	address := fmt.Sprintf(":%d", serverPort)

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: corev1.PodSpec{
			NodeName: p.vm, AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &now,
			Containers: []corev1.Container{{
				Name: "server", Image: "none", // the lab runs programs of this machine
				Command: []string{
					filepath.Join(bin, "ovnlab"), "traffic", "serve", "-name", p.name,
					"-tcp", address, "-udp", address,
				},
			}},
		},
	}
}
