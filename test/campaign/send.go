package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
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

// send makes a call of the API server, as the tenant, and a report as the cluster. With harmless, it
// makes the same call for a ConfigMap.
func (t *tenant) send(ctx context.Context, c call, harmless bool) error {
	namespace := c.object.GetNamespace()

	if harmless {
		m, err := asConfigMap(&c)
		if err != nil {
			return err
		}

		maps := t.client.CoreV1().ConfigMaps(namespace)

		return send(ctx, c, m, maps, statuslessMaps{maps})
	}

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

// asConfigMap returns a ConfigMap in place of the call's object, with the same size, and changes the
// call's patch or status to one for it.
func asConfigMap(c *call) (*corev1.ConfigMap, error) {
	text, err := json.Marshal(c.object)
	if err != nil {
		return nil, fmt.Errorf("encode %T %s: %w", c.object, c.object.GetName(), err)
	}

	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.object.GetNamespace(), Name: strings.ToLower(kindOf(c.object)) + "-" + c.object.GetName()},
		Data:       map[string]string{"object": string(text)},
	}

	if c.verb == patch {
		if c.patch, err = json.Marshal(map[string]any{"data": map[string]string{"patch": string(c.patch)}}); err != nil {
			return nil, fmt.Errorf("encode a patch of %s: %w", m.Name, err)
		}
	}

	c.status = func(now metav1.Object) { now.SetAnnotations(map[string]string{"reported": now.GetResourceVersion()}) }

	return m, nil
}

// kindOf returns the kind of an object.
func kindOf(o metav1.Object) string { return reflect.TypeOf(o).Elem().Name() }

// statuslessMaps writes the reports about ConfigMaps, which have no status.
type statuslessMaps struct{ typedcorev1.ConfigMapInterface }

func (m statuslessMaps) UpdateStatus(ctx context.Context, now *corev1.ConfigMap, options metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	return m.Update(ctx, now, options)
}
