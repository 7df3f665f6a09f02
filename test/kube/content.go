package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ErrBeyond means that something was changed that Restore does not restore.
var ErrBeyond = errors.New("beyond what can be restored")

// restored are the kinds of objects that Restore restores: their key in etcd, and the path of their
// list. Others, like roles and resource definitions, change what the API server permits or serves.
var restored = []struct{ key, path string }{
	{"/registry/configmaps/", "/api/v1/configmaps"},
	{"/registry/endpointslices/", "/apis/discovery.k8s.io/v1/endpointslices"},
	{"/registry/events/", ""}, // not cached
	{"/registry/ipaddresses/", "/apis/networking.k8s.io/v1/ipaddresses"},
	{"/registry/leases/", "/apis/coordination.k8s.io/v1/leases"},
	{"/registry/minions/", "/api/v1/nodes"},
	{"/registry/namespaces/", "/api/v1/namespaces"},
	{"/registry/networkpolicies/", "/apis/networking.k8s.io/v1/networkpolicies"},
	{"/registry/pods/", "/api/v1/pods"},
	{"/registry/ranges/servicenodeports", ""}, // no object
	{"/registry/secrets/", "/api/v1/secrets"},
	{"/registry/services/endpoints/", "/api/v1/endpoints"},
	{"/registry/services/specs/", "/api/v1/services"},
}

// own are the keys that the API server itself changes.
var own = []string{"/registry/leases/kube-system/apiserver-", "/registry/masterleases/", "/registry/apiregistration.k8s.io/"}

// Content is what a server stores, by key. Objects that the server maintains by itself are left
// out.
type Content map[string]stored

// stored is an entry in etcd. Its revision changes whenever it is written.
type stored struct {
	Value    []byte `json:"value"`
	Revision string `json:"mod_revision"`
}

// Content returns what the server stores, once it has created its own objects.
func (s *Server) Content(ctx context.Context) (Content, error) {
	client, err := kubernetes.NewForConfig(s.RestConfig())
	if err != nil {
		return nil, err
	}

	err = s.apiserver.Await(ctx, "Service kubernetes", func() error { // the last object that a server creates
		_, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}

	return s.content(ctx)
}

func (s *Server) content(ctx context.Context) (Content, error) {
	var reply struct {
		KVs []struct {
			Key []byte `json:"key"`
			stored
		} `json:"kvs"`
	}
	if err := s.ask(ctx, "range", map[string]any{"key": []byte{0}, "range_end": []byte{0}}, &reply); err != nil {
		return nil, err
	}

	c := Content{}

	for _, kv := range reply.KVs {
		key := string(kv.Key)
		if !slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			c[key] = kv.stored
		}
	}

	return c, nil
}

// Restore makes the server store what it stored before, and returns what it stores then. It returns
// ErrBeyond, and has changed nothing, if there are changes of other kinds of objects. No client may
// write meanwhile. Watches see the changes as any other, and lists that the server has cached show
// them when Restore returns.
func (s *Server) Restore(ctx context.Context, before Content) (Content, error) {
	now, err := s.content(ctx)
	if err != nil {
		return nil, fmt.Errorf("restore API server: %w", err)
	}

	paths := map[string]bool{}
	change := func(key string) error {
		for _, r := range restored {
			if strings.HasPrefix(key, r.key) {
				paths[r.path] = true
				return nil
			}
		}

		return fmt.Errorf("restore API server: key %s: %w", key, ErrBeyond)
	}

	var gone, changed []string

	for key, kv := range now {
		if was, ok := before[key]; !ok {
			gone, err = append(gone, key), errors.Join(err, change(key))
		} else if was.Revision != kv.Revision {
			changed, err = append(changed, key), errors.Join(err, change(key))
		}
	}

	for key := range before {
		if _, ok := now[key]; !ok {
			changed, err = append(changed, key), errors.Join(err, change(key))
		}
	}

	if err != nil {
		return nil, err
	}

	for _, key := range gone {
		err = errors.Join(err, s.ask(ctx, "deleterange", map[string]any{"key": []byte(key)}, nil))
	}

	for _, key := range changed {
		err = errors.Join(err, s.ask(ctx, "put", map[string]any{"key": []byte(key), "value": before[key].Value}, nil))
	}

	delete(paths, "")

	for path := range paths {
		err = errors.Join(err, s.awaitCached(ctx, path))
	}

	if err != nil {
		return nil, fmt.Errorf("restore API server: %w", err)
	}

	return s.content(ctx)
}

// awaitCached waits until the server's cached list equals the current one.
func (s *Server) awaitCached(ctx context.Context, path string) error {
	client, err := kubernetes.NewForConfig(s.RestConfig())
	if err != nil {
		return err
	}

	list := func(version string) ([]string, error) {
		b, err := client.RESTClient().Get().AbsPath(path).Param("resourceVersion", version).DoRaw(ctx)
		if err != nil {
			return nil, err
		}

		var l metav1.PartialObjectMetadataList
		if err := json.Unmarshal(b, &l); err != nil {
			return nil, err
		}

		var out []string
		for _, o := range l.Items {
			out = append(out, o.Namespace+"/"+o.Name+" "+o.ResourceVersion)
		}

		slices.Sort(out)

		return out, nil
	}

	return s.apiserver.Await(ctx, "cache of "+path, func() error {
		current, err := list("")
		if err != nil {
			return err
		}

		cached, err := list("0")
		if err == nil && !slices.Equal(current, cached) {
			err = fmt.Errorf("it has %q, not %q", cached, current)
		}

		return err
	})
}

// ask sends a request to etcd's JSON gateway.
func (s *Server) ask(ctx context.Context, method string, request, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	b, err := json.Marshal(request)
	if err != nil {
		return err
	}

	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.etcdURL+"/v3/kv/"+method, bytes.NewReader(b))
	if err != nil {
		return err
	}

	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s", method, resp.Status)
	}

	if reply == nil {
		return nil
	}

	return json.NewDecoder(resp.Body).Decode(reply)
}
