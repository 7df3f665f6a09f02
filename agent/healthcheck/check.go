package healthcheck

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/ovn-ebpf/ovn-ebpf/listener"
	"github.com/ovn-ebpf/ovn-ebpf/service"
)

// check serves the health check of one Service.
type check struct {
	name      service.Key
	port      uint16
	endpoints atomic.Int64 // number of the Service's endpoints that are ready and on this node
	healthy   func() bool  // see Options
	server    io.Closer
}

// newCheck returns a check that serves on l until close. Its connections count in the pool.
func newCheck(k service.Key, w wanted, l net.Listener, pool *listener.Pool, healthy func() bool) *check {
	c := &check{name: k, port: w.port, healthy: healthy}
	c.endpoints.Store(int64(w.endpoints))
	server := pool.Server(c, listener.Timeouts{})

	c.server = server
	go server.Serve(l) //nolint:errcheck // ends by close, the only error of a listener

	return c
}

// close ends the listener and its connections.
func (c *check) close() { c.server.Close() }

// answer is the response body, in kube-proxy's format.
type answer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int64 `json:"localEndpoints"`
	ServiceProxyHealthy bool  `json:"serviceProxyHealthy"`
}

// ServeHTTP answers any path: with 200 if the node serves the Service and has endpoints of it, and
// else with 503.
func (c *check) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a := answer{LocalEndpoints: c.endpoints.Load(), ServiceProxyHealthy: c.healthy()}
	a.Service.Namespace, a.Service.Name = c.name.Namespace, c.name.Name
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(a.LocalEndpoints, 10))
	reply(w, a.LocalEndpoints > 0 && a.ServiceProxyHealthy, a)
}

// reply answers with status 200 if ok is set, else 503, and a body in JSON.
func reply(w http.ResponseWriter, ok bool, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")

	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}

	enc := json.NewEncoder(w)
	enc.SetIndent("", "\t")
	_ = enc.Encode(body) // fails only if the client has gone
}
