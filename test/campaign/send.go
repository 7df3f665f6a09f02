package campaign

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// writer is what client-go has for the objects of one kind in a namespace.
type writer[O metav1.Object] interface {
	Create(context.Context, O, metav1.CreateOptions) (O, error)
	Update(context.Context, O, metav1.UpdateOptions) (O, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	Get(context.Context, string, metav1.GetOptions) (O, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (O, error)
}

// reporter is the same for kinds with a status.
type reporter[O metav1.Object] interface {
	Get(context.Context, string, metav1.GetOptions) (O, error)
	UpdateStatus(context.Context, O, metav1.UpdateOptions) (O, error)
}

// send makes a call of the API server, as the tenant, and a report as the cluster.
func (t *tenant) send(ctx context.Context, c call) error {
	namespace := c.object.GetNamespace()

	switch o := c.object.(type) {
	case *corev1.Pod:
		return send(ctx, c, o, t.client.CoreV1().Pods(namespace), t.cluster.CoreV1().Pods(namespace))
	case *corev1.Service:
		return send(ctx, c, o, t.client.CoreV1().Services(namespace), t.cluster.CoreV1().Services(namespace))
	case *discoveryv1.EndpointSlice:
		return send(ctx, c, o, t.client.DiscoveryV1().EndpointSlices(namespace), nil)
	case *networkingv1.NetworkPolicy:
		return send(ctx, c, o, t.client.NetworkingV1().NetworkPolicies(namespace), nil)
	}

	return fmt.Errorf("send %T: no client", c.object)
}

func send[O metav1.Object](ctx context.Context, c call, o O, tenant writer[O], cluster reporter[O]) error {
	name := o.GetName()

	var err error

	switch c.verb {
	case create:
		_, err = tenant.Create(ctx, o, metav1.CreateOptions{})
	case replace:
		var now O
		if now, err = tenant.Get(ctx, name, metav1.GetOptions{}); err == nil {
			o.SetResourceVersion(now.GetResourceVersion())
			_, err = tenant.Update(ctx, o, metav1.UpdateOptions{})
		}
	case remove:
		err = tenant.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &c.grace})
	case toggle:
		if err = tenant.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &c.grace}); err != nil {
			_, err = tenant.Create(ctx, o, metav1.CreateOptions{})
		}
	case patch:
		_, err = tenant.Patch(ctx, name, types.MergePatchType, c.patch, metav1.PatchOptions{})
	case report:
		var now O
		if now, err = cluster.Get(ctx, name, metav1.GetOptions{}); err == nil {
			c.status(now)
			_, err = cluster.UpdateStatus(ctx, now, metav1.UpdateOptions{})
		}
	}

	return err
}
