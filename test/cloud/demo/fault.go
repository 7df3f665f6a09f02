package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// copycat is the name of the Node that announces the VIF of vm1.
const copycat = "copycat"

// showFault creates a Node that announces the VIF of vm1, and prints the Event that it gets. Node
// vm1 keeps its ports.
func (d *cloudDemo) showFault(ctx context.Context) error {
	fmt.Fprintf(d.w, "\na fault: the Node %s announces the network interface of vm1\n", copycat)

	client, err := d.Kubernetes()
	if err != nil {
		return err
	}

	nodes := client.CoreV1().Nodes()

	vm1, err := nodes.Get(ctx, "vm1", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Node vm1: %w", err)
	}

	_, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        copycat,
		Annotations: map[string]string{annotation.Underlay: vm1.Annotations[annotation.Underlay]},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Node %s: %w", copycat, err)
	}

	if err := d.printEvent(ctx, copycat, string(cloud.VIFTaken)); err != nil {
		return err
	}

	if err := nodes.Delete(ctx, copycat, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete Node %s: %w", copycat, err)
	}

	d.took("a fault and its Event")

	return nil
}

// printEvent waits for an Event about the Node with the reason, and prints it.
func (d *cloudDemo) printEvent(ctx context.Context, node, reason string) error {
	client, err := d.Kubernetes()
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	for {
		list, err := client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + node,
		})
		if err != nil {
			return fmt.Errorf("wait for Event %s about Node %s: %w", reason, node, err)
		}

		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, "vm1") {
				fmt.Fprintf(d.w, "%s  %s  node/%s  %s\n", e.Type, e.Reason, node, e.Message)
				return nil
			}
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for Event %s about Node %s: %w", reason, node, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
