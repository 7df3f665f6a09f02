package openstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
)

// The tests of requests are in test/cloud, at a real Neutron.

// TestTransportBoundsConcurrency: no more requests than workers are under way.
func TestTransportBoundsConcurrency(t *testing.T) {
	const workers, requests = 3, 30

	var now, most atomic.Int32

	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}

		time.Sleep(2 * time.Millisecond)
		now.Add(-1)
	}))
	defer server.Close()

	client := http.Client{Transport: newTransport(Options{Rate: 1e6, Workers: workers}, nil)}

	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			r, err := client.Get(server.URL)
			if err != nil {
				t.Error(err)
				return
			}

			r.Body.Close()
		})
	}

	wg.Wait()

	if m := most.Load(); m < 1 || m > workers {
		t.Errorf("%d requests at a time, want at most %d", m, workers)
	}
}

// TestTransportObeysRate: after the requests of a second, each takes an interval.
func TestTransportObeysRate(t *testing.T) {
	const rate, more = 50, 3

	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()

	client := http.Client{Transport: newTransport(Options{Rate: rate, Workers: 4}, nil)}
	start := time.Now()

	for range rate + more {
		r, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}

		r.Body.Close()
	}

	if took := time.Since(start); took < 59*time.Millisecond {
		t.Errorf("%d requests took %v at %d per second, want at least 60 ms", rate+more, took, rate)
	}
}

// TestTransportWaitEnds: a request that waits for its turn ends with its context, and leaves no
// slot taken.
func TestTransportWaitEnds(t *testing.T) {
	transport := newTransport(Options{Rate: 1e-3, Workers: 1}, nil)
	transport.rate.Allow() // the next turn is in a quarter of an hour

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := transport.RoundTrip(r); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}

	if n := len(transport.slots); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// A request asks for permission after it has waited for its turn, and is not sent without it.
func TestWithPermit(t *testing.T) {
	var served atomic.Int32

	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer server.Close()

	transport := newTransport(Options{Rate: 1e6, Workers: 1}, nil)

	refused := errors.New("not the leader")
	for _, want := range []error{refused, nil} {
		ctx := WithPermit(t.Context(), func(context.Context) error {
			if len(transport.slots) != 1 {
				t.Error("permission is asked before the turn of the request")
			}

			return want
		})

		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}

		response, err := (&http.Client{Transport: transport}).Do(r)
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}

		if err == nil {
			response.Body.Close()
		}
	}

	if n := served.Load(); n != 1 {
		t.Errorf("%d requests were sent, want the permitted one", n)
	}
}

func TestClassify(t *testing.T) {
	response := func(status int, kind string) error {
		body := ""
		if kind != "" {
			body = fmt.Sprintf(`{"NeutronError": {"type": %q, "message": "m", "detail": ""}}`, kind)
		}

		return gophercloud.ErrUnexpectedResponseCode{Actual: status, Body: []byte(body), Method: "PUT", URL: "http://x"}
	}
	for _, tc := range []struct {
		err  error
		want Kind
		text string
	}{
		{response(409, "OverQuota"), Quota, "create ports: quota: OverQuota: m"},
		{response(500, "SubnetAllocationError"), Quota, "create ports: quota: SubnetAllocationError: m"},
		{response(409, "ParentPortInUse"), Refused, "create ports: refused: ParentPortInUse: m"},
		{response(409, "TrunkInUse"), Refused, "create ports: refused: TrunkInUse: m"},
		{response(409, "TrunkDisabled"), Refused, "create ports: refused: TrunkDisabled: m"},
		{response(409, "TrunkInErrorState"), Refused, "create ports: refused: TrunkInErrorState: m"},
		{
			response(409, "SubPortMtuGreaterThanTrunkPortMtu"), Refused,
			"create ports: refused: SubPortMtuGreaterThanTrunkPortMtu: m",
		},
		{response(409, "TrunkPortInUse"), Conflict, "create ports: conflict: TrunkPortInUse: m"},
		{response(409, "MacAddressInUse"), Conflict, "create ports: conflict: MacAddressInUse: m"},
		{response(404, "PortNotFound"), Gone, "create ports: gone: PortNotFound: m"},
		{response(400, "InvalidInput"), Refused, "create ports: refused: InvalidInput: m"},
		{response(403, ""), Refused, "create ports: refused: status 403 of PUT http://x"},
		{response(401, ""), Refused, "create ports: refused: status 401 of PUT http://x"},
		{response(429, ""), Busy, "create ports: busy: status 429 of PUT http://x"},
		{response(503, ""), Busy, "create ports: busy: status 503 of PUT http://x"},
		{response(500, "HTTPInternalServerError"), Away, "create ports: away: HTTPInternalServerError: m"},
		{response(504, ""), Away, "create ports: away: status 504 of PUT http://x"},
		{fmt.Errorf("dial: %w", errors.New("connection refused")), Away, "create ports: away: dial: connection refused"},
		{&gophercloud.ErrErrorAfterReauthentication{ErrOriginal: response(409, "OverQuota")}, Quota, "create ports: quota: OverQuota: m"},
		{&gophercloud.ErrUnableToReauthenticate{ErrReauth: response(401, "")}, Refused, "create ports: refused: status 401 of PUT http://x"},
	} {
		err := classify("create ports", tc.err)
		if got := KindOf(err); got != tc.want || err.Error() != tc.text {
			t.Errorf("%v: kind %s, text %q; want %s, %q", tc.err, got, err, tc.want, tc.text)
		}
	}

	if err := classify("create ports", context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled became %v", err)
	}

	if KindOf(nil) != OK || KindOf(context.Canceled) != Away {
		t.Error("kinds of nil and of canceled")
	}
}

// The time of Retry-After is part of an error, in both forms of the header.
func TestClassify_retryAfter(t *testing.T) {
	header := func(value string) error {
		return gophercloud.ErrUnexpectedResponseCode{Actual: 429, ResponseHeader: http.Header{"Retry-After": {value}}}
	}

	for value, want := range map[string]time.Duration{
		"7":                             7 * time.Second,
		"":                              0,
		"soon":                          0,
		"-1":                            0,
		"Mon, 02 Jan 2006 15:04:05 GMT": 0, // has passed
	} {
		var e *Error
		if err := classify("list ports", header(value)); !errors.As(err, &e) || e.RetryAfter != want {
			t.Errorf("Retry-After %q: %+v, want %s", value, err, want)
		}
	}

	now := time.Date(2006, 1, 2, 15, 4, 5, 0, time.UTC)

	date := http.Header{"Retry-After": {now.Add(time.Minute).Format(http.TimeFormat)}}
	if got := retryAfter(date, now); got != time.Minute {
		t.Errorf("a date in a minute: %s", got)
	}
}

// A Keystone that does not answer is of kind away, so that the controller waits for it.
func TestOpen_keystoneAway(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	address := server.URL
	server.Close()

	file := filepath.Join(t.TempDir(), "clouds.yaml")

	text := "clouds: {k8s: {auth: {auth_url: " + address + "/v3, username: u, password: p, project_name: p," +
		" user_domain_name: d, project_domain_name: d}}}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	_, err := Open(t.Context(), Options{Cloud: "k8s", File: file, Rate: 1, Workers: 1, Timeout: time.Second})

	var e *Error
	if !errors.As(err, &e) || e.Kind != Away || !strings.Contains(err.Error(), address) {
		t.Errorf("error %v, want one of kind away that names %s", err, address)
	}
}

// TestOpenRefusesSettings: settings without which requests would never be sent are refused, and so
// is a cloud that the file lacks.
func TestOpenRefusesSettings(t *testing.T) {
	good := Options{Cloud: "k8s", File: "testdata/clouds.yaml", Rate: 4, Workers: 2, Timeout: time.Second}
	for name, change := range map[string]func(*Options){
		"rate":    func(o *Options) { o.Rate = 0 },
		"workers": func(o *Options) { o.Workers = 0 },
		"timeout": func(o *Options) { o.Timeout = 0 },
		"cloud":   func(o *Options) { o.Cloud = "nowhere" },
		"file":    func(o *Options) { o.File = "testdata/none.yaml" },
	} {
		o := good
		change(&o)

		if _, err := Open(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "open cloud "+o.Cloud+": ") {
			t.Errorf("wrong %s: %v", name, err)
		}
	}
}

// newTestClient returns a client whose Neutron answers each request with the text.
func newTestClient(t *testing.T, status int, answer string) (c *Client, bodies *[]string) {
	t.Helper()

	bodies = new([]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}

		*bodies = append(*bodies, string(body))

		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)

	return &Client{network: &gophercloud.ServiceClient{
		ProviderClient: &gophercloud.ProviderClient{}, Endpoint: server.URL + "/",
	}}, bodies
}

// TestCreatePortsSendsGroups: each port of a request has security_groups, also if the port is to
// have none. Without them, Neutron gives it the project's group "default".
func TestCreatePortsSendsGroups(t *testing.T) {
	c, bodies := newTestClient(t, http.StatusCreated, `{"ports": []}`)

	wanted := []cloud.Port{{Name: "none", Groups: []string{}}, {Name: "two", Groups: []string{"a", "b"}}}
	if _, err := c.CreatePorts(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}

	if len(*bodies) != 1 {
		t.Fatalf("requests %q, want one", *bodies)
	}

	for _, want := range []string{`"security_groups":[]`, `"security_groups":["a","b"]`} {
		if !strings.Contains((*bodies)[0], want) {
			t.Errorf("request %s, want %s", (*bodies)[0], want)
		}
	}

	_, err := c.CreatePorts(t.Context(), append(wanted, cloud.Port{Name: "k8s-node1-10.244.0.5"}))

	const want = "create ports: refused: groups of port k8s-node1-10.244.0.5 are not known"
	if err == nil || err.Error() != want || KindOf(err) != Refused {
		t.Errorf("unknown groups: error %v, want %q", err, want)
	}

	if len(*bodies) != 1 {
		t.Errorf("requests %q were sent with unknown groups", (*bodies)[1:])
	}
}

// TestPortsKeepUnknownGroups: groups are unknown if Neutron's answer has none, because the
// extension is missing. That differs from a port without groups.
func TestPortsKeepUnknownGroups(t *testing.T) {
	c, _ := newTestClient(t, http.StatusOK, `{"ports": [
		{"id": "unknown"}, {"id": "none", "security_groups": []}, {"id": "two", "security_groups": ["b", "a"]}]}`)

	all, err := c.Ports(t.Context(), PortFilter{})
	if err != nil {
		t.Fatal(err)
	}

	var got [][]string
	for _, p := range all {
		got = append(got, p.Groups)
	}

	if want := [][]string{nil, {}, {"a", "b"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got groups %#v, want %#v", got, want)
	}
}

// TestAllowsAll: a rule that is narrower in any way does not allow everything.
func TestAllowsAll(t *testing.T) {
	for _, r := range []rules.SecGroupRule{
		{Direction: "ingress", EtherType: "IPv4"},
		{Direction: "ingress", EtherType: "IPv4", RemoteIPPrefix: "0.0.0.0/0"},
		{Direction: "egress", EtherType: "IPv6", RemoteIPPrefix: "::/0"},
	} {
		if !allowsAll(r) {
			t.Errorf("%+v does not allow everything", r)
		}
	}

	for _, r := range []rules.SecGroupRule{
		{Protocol: "tcp"},
		{PortRangeMin: 1},
		{PortRangeMax: 1},
		{RemoteGroupID: "g"},
		{RemoteAddressGroupID: "g"},
		{RemoteIPPrefix: "10.0.0.0/8"},
	} {
		if allowsAll(r) {
			t.Errorf("%+v allows everything", r)
		}
	}
}
