package cloud

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// ProxyCloud is the entry of clouds.yaml whose requests to Neutron pass through the Proxy.
const ProxyCloud = "k8s-proxy"

// proxyRegion is the region of the catalog in which the Proxy is Neutron.
const proxyRegion = "RegionProxy"

// Answer is how the Proxy answers a request. The zero value passes Neutron's answer on.
type Answer struct {
	Delay  time.Duration // before anything else
	Status int           // answered instead of Neutron; 0: Neutron answers
	Type   string        // of Neutron's error, in the body of an answer with a Status
	Header http.Header   // of an answer with a Status
	Lost   bool          // Neutron executes the request, and its answer does not arrive
}

// Proxy stands between a client and Neutron, and can answer in its place.
type Proxy struct {
	listener net.Listener
	server   *http.Server
	neutron  *httputil.ReverseProxy

	mu       sync.Mutex // guards the fields below
	answer   func(*http.Request) Answer
	requests []Request
}

// Request is a request that the Proxy has received.
type Request struct {
	At           time.Time
	Method, Path string
}

// newProxy returns a Proxy on a free loopback address.
func newProxy(neutron string) (*Proxy, error) {
	target, err := url.Parse(neutron)
	if err != nil {
		return nil, err
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	p := &Proxy{listener: l, neutron: httputil.NewSingleHostReverseProxy(target)}

	p.server = &http.Server{Handler: p}
	go p.server.Serve(l) //nolint:errcheck // it ends by Close

	return p, nil
}

// Set makes answer decide about all requests from now on; nil: Neutron answers. It returns the
// requests since the last call.
func (p *Proxy) Set(answer func(*http.Request) Answer) []Request {
	p.mu.Lock()
	defer p.mu.Unlock()

	requests := p.requests
	p.answer, p.requests = answer, nil

	return requests
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests = append(p.requests, Request{time.Now(), r.Method, r.URL.Path})
	answer := p.answer
	p.mu.Unlock()

	var a Answer
	if answer != nil {
		a = answer(r)
	}

	if a.Delay > 0 {
		select {
		case <-r.Context().Done():
		case <-time.After(a.Delay):
		}
	}

	switch {
	case a.Lost:
		p.neutron.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // closes the connection without an answer
	case a.Status != 0:
		for name, values := range a.Header {
			w.Header()[name] = values
		}

		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.Status)
		body := `{"NeutronError": {"type": "` + a.Type + `", "message": "said by the proxy", "detail": ""}}`
		w.Write([]byte(body)) //nolint:errcheck // the client has gone
	default:
		p.neutron.ServeHTTP(w, r)
	}
}

func (p *Proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *Proxy) close() error { return p.server.Close() }
