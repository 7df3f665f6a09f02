package cniserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Annotations of a pod in bits per second, as in kubenet and the bandwidth plugin. Ingress is
// traffic to the pod.
const (
	ingressBandwidth = "kubernetes.io/ingress-bandwidth"
	egressBandwidth  = "kubernetes.io/egress-bandwidth"
)

// bandwidth returns a pod's limits in bits per second, or 0 for no limit. It accepts 1k to 1P, like
// Kubernetes.
func bandwidth(annotations map[string]string) (ingress, egress uint64, err error) {
	if ingress, err = rate(annotations, ingressBandwidth); err == nil {
		egress, err = rate(annotations, egressBandwidth)
	}

	return ingress, egress, err
}

// rate returns the limit in an annotation, or 0 without it.
func rate(annotations map[string]string, key string) (uint64, error) {
	text, set := annotations[key]
	if !set {
		return 0, nil
	}

	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("annotation %s=%q: %w", key, text, err)
	}

	const minRate, maxRate = 1e3, 1e15
	if q.Value() < minRate || q.Value() > maxRate {
		return 0, fmt.Errorf("annotation %s=%q: want 1k to 1P bits a second", key, text)
	}

	return uint64(q.Value()), nil
}
