package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile/churntest"
)

// serverAPI changes the objects of a real API server, as clients, kubelets, the scheduler
// and the namespace controller do. What the server refuses stays as it is, and is counted.
// The first other error ends all changes.
type serverAPI struct {
	*world
	ctx  context.Context
	keys map[string]map[string]bool // of the objects that there are, by resource
	done map[string]int             // changes, and what was refused, by why
	err  error
}

func newServerAPI(w *world) *serverAPI {
	return &serverAPI{world: w, ctx: w.t.Context(), keys: map[string]map[string]bool{}, done: map[string]int{}}
}

func (s *serverAPI) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(s.done)) {
		fmt.Fprintf(&b, "%s %d, ", what, s.done[what])
	}

	for _, r := range slices.Sorted(maps.Keys(s.keys)) {
		fmt.Fprintf(&b, "%d %s, ", len(s.keys[r]), r)
	}

	return strings.TrimSuffix(b.String(), ", ")
}

// All returns objects that have a name and no more.
func (s *serverAPI) All(resource string) []metav1.Object {
	var out []metav1.Object

	for _, key := range slices.Sorted(maps.Keys(s.keys[resource])) {
		obj, _ := newObject(resource)
		namespace, name := churntest.SplitKey(key)
		obj.SetNamespace(namespace)
		obj.SetName(name)
		out = append(out, obj)
	}

	return out
}

func (s *serverAPI) Put(obj metav1.Object) {
	if ns := obj.GetNamespace(); ns != "" && !s.keys[churntest.Namespaces][ns] {
		s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}

	resource := churntest.ResourceOf(obj)
	made, _ := newObject(resource)

	request := s.rest(resource).Post().NamespaceIfScoped(obj.GetNamespace(), obj.GetNamespace() != "").Resource(resource)
	if !s.took("create", request.Body(obj).Do(s.ctx).Into(made.(runtime.Object))) {
		return
	}

	if s.keys[resource] == nil {
		s.keys[resource] = map[string]bool{}
	}

	s.keys[resource][churntest.Key(obj)] = true
	// The status is taken from no one who creates, and the server has set fields.
	want := made.(runtime.Object).DeepCopyObject().(metav1.Object)
	copyStatus(want, obj)
	s.patch("create", made, want, "status")
}

func (s *serverAPI) Edit(resource, key string, change func(metav1.Object)) {
	if !s.keys[resource][key] {
		return
	}

	was, _ := newObject(resource)
	namespace, name := churntest.SplitKey(key)

	get := s.rest(resource).Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name)
	if !s.took("", get.Do(s.ctx).Into(was.(runtime.Object))) {
		return
	}

	if was.GetAnnotations() == nil {
		was.SetAnnotations(map[string]string{})
	}

	now := was.(runtime.Object).DeepCopyObject().(metav1.Object)
	change(now)

	if svc, ok := now.(*corev1.Service); ok {
		s.replaceService(was.(*corev1.Service), svc)
		return
	}

	if pod, ok := now.(*corev1.Pod); ok && was.(*corev1.Pod).Spec.NodeName != pod.Spec.NodeName {
		s.took("bind", s.client.CoreV1().Pods(namespace).Bind(s.ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: pod.Spec.NodeName},
		}, metav1.CreateOptions{}))

		return
	}

	status := now.(runtime.Object).DeepCopyObject().(metav1.Object)
	copyStatus(now, was)

	if s.patch("change", was, now, "") {
		s.patch("change", now, status, "status")
	}
}

// replaceService changes a Service where that can be done, and else makes it anew.
func (s *serverAPI) replaceService(was, now *corev1.Service) {
	status := now.DeepCopy()

	now.Status = was.Status
	if slices.Equal(was.Spec.ClusterIPs, now.Spec.ClusterIPs) && s.patch("change", was, now, "") {
		s.patch("change", now, status, "status")
		return
	}

	if s.err != nil {
		return
	}

	s.Remove(churntest.Services, churntest.Key(was))
	s.Put(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: was.Namespace, Name: was.Name, Labels: now.Labels}, Spec: now.Spec, Status: status.Status,
	})
}

func (s *serverAPI) Remove(resource, key string) {
	if !s.keys[resource][key] {
		return
	}

	namespace, name := churntest.SplitKey(key)
	now := int64(0)

	request := s.rest(resource).Delete().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name)
	if !s.took("delete", request.Body(&metav1.DeleteOptions{GracePeriodSeconds: &now}).Do(s.ctx).Error()) {
		return
	}

	delete(s.keys[resource], key)

	if resource != churntest.Namespaces {
		return
	}

	for _, in := range []string{churntest.Pods, churntest.Services, churntest.EndpointSlices, churntest.Policies} {
		for _, k := range slices.Sorted(maps.Keys(s.keys[in])) {
			if strings.HasPrefix(k, name+"/") {
				s.Remove(in, k)
			}
		}
	}

	_, err := s.client.CoreV1().Namespaces().Finalize(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{})
	s.took("finalize", err)
}

// patch writes the difference of two objects, and tells whether the server took it.
func (s *serverAPI) patch(what string, was, now metav1.Object, subresource string) bool {
	old, err := json.Marshal(was)
	if err != nil {
		s.err = err
		return false
	}

	text, err := json.Marshal(now)
	if err != nil {
		s.err = err
		return false
	}

	patch, err := strategicpatch.CreateTwoWayMergePatch(old, text, was)
	if err != nil {
		s.err = err
		return false
	}

	if string(patch) == "{}" {
		return true
	}

	resource := churntest.ResourceOf(was)

	request := s.rest(resource).Patch(types.StrategicMergePatchType).NamespaceIfScoped(was.GetNamespace(), was.GetNamespace() != "").
		Resource(resource).Name(was.GetName())
	if subresource != "" {
		request = request.SubResource(subresource)
		what += " " + subresource
	}

	return s.took(what, request.Body(patch).Do(s.ctx).Error())
}

// took counts what became of a request, and tells whether it was granted.
func (s *serverAPI) took(what string, err error) bool {
	switch {
	case s.err != nil:
		return false
	case err == nil:
		if what != "" {
			s.done[what]++
		}

		return true
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		what = fmt.Sprintf("refused: %s %s", what, apierrors.ReasonForError(err))

		s.done[what]++
		if s.done[what] <= 3 {
			s.t.Logf("%s: %v", what, err)
		}

		return false
	default:
		s.err = fmt.Errorf("%s: %w", what, err)
		return false
	}
}

func (s *serverAPI) rest(resource string) rest.Interface {
	switch resource {
	case churntest.EndpointSlices:
		return s.client.DiscoveryV1().RESTClient()
	case churntest.Policies:
		return s.client.NetworkingV1().RESTClient()
	default:
		return s.client.CoreV1().RESTClient()
	}
}

var kinds = map[string]string{
	churntest.Nodes: "Node", churntest.Pods: "Pod", churntest.Services: "Service", churntest.Namespaces: "Namespace",
	churntest.EndpointSlices: "EndpointSlice", churntest.Policies: "NetworkPolicy",
}

func newObject(resource string) (metav1.Object, error) {
	version := corev1.SchemeGroupVersion

	switch resource {
	case churntest.EndpointSlices:
		version = discoveryv1.SchemeGroupVersion
	case churntest.Policies:
		version = networkingv1.SchemeGroupVersion
	}

	obj, err := scheme.Scheme.New(version.WithKind(kinds[resource]))
	if err != nil {
		return nil, err
	}

	return obj.(metav1.Object), nil
}

// copyStatus gives an object the status of another.
func copyStatus(to, from metav1.Object) {
	switch to := to.(type) {
	case *corev1.Pod:
		to.Status = from.(*corev1.Pod).Status
	case *corev1.Service:
		to.Status = from.(*corev1.Service).Status
	}
}
