package openstack

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"golang.org/x/time/rate"
)

// Options are the settings of a Client.
type Options struct {
	Cloud   string        // entry of clouds.yaml
	File    string        // clouds.yaml; "": where openstack's own clients look for it
	Rate    float64       // requests per second, more than 0
	Workers int           // requests at the same time; at least 1
	Timeout time.Duration // of a request
	// Done is called after each call of the API, if it is not nil. It must not block.
	Done func(call string, kind Kind, took time.Duration)
}

// Client makes requests for one project of an OpenStack cloud. Its methods may be called
// concurrently.
type Client struct {
	network *gophercloud.ServiceClient
	project string
	done    func(string, Kind, time.Duration)
}

// Open authenticates and finds the project's Neutron. Errors of requests are *Error. Waiting does
// not repair other errors, such as a missing entry of clouds.yaml, or credentials without a
// project.
func Open(ctx context.Context, o Options) (*Client, error) {
	if o.Rate <= 0 || o.Workers < 1 || o.Timeout <= 0 {
		return nil, fmt.Errorf("open cloud %s: rate %v, workers %d, timeout %v: want more than 0",
			o.Cloud, o.Rate, o.Workers, o.Timeout)
	}

	parse := []clouds.ParseOption{clouds.WithCloudName(o.Cloud)}
	if o.File != "" {
		parse = append(parse, clouds.WithLocations(o.File))
	}

	path, err := checkCloud(o.File, o.Cloud)
	if err != nil {
		return nil, fmt.Errorf("open cloud %s: %w", o.Cloud, err)
	}

	auth, endpoint, tlsConfig, err := clouds.Parse(parse...)
	if err != nil {
		return nil, fmt.Errorf("open cloud %s: %w", o.Cloud, err)
	}

	auth.AllowReauth = true

	provider, err := openstack.NewClient(auth.IdentityEndpoint)
	if err != nil {
		return nil, fmt.Errorf("open cloud %s: %w", o.Cloud, err)
	}

	provider.HTTPClient = http.Client{Transport: newTransport(o, tlsConfig), Timeout: o.Timeout}
	provider.UserAgent.Prepend("ovn-ebpf")

	if err := openstack.Authenticate(ctx, provider, auth); err != nil {
		err = classify("authenticate at "+auth.IdentityEndpoint, err)
		if KindOf(err) == Refused {
			return nil, fmt.Errorf("open cloud %s: %w: check the credentials of this entry in %s; they "+
				"may be expired or deleted", o.Cloud, err, path)
		}

		return nil, fmt.Errorf("open cloud %s: %w", o.Cloud, err)
	}

	c := &Client{done: o.Done}
	if c.project, err = project(provider); err != nil {
		return nil, fmt.Errorf("open cloud %s: %w", o.Cloud, err)
	}

	if c.network, err = openstack.NewNetworkV2(provider, endpoint); err != nil {
		return nil, fmt.Errorf("open cloud %s: find network service: %w", o.Cloud, err)
	}

	return c, nil
}

// Project returns the ID of the project of the credentials.
func (c *Client) Project() string { return c.project }

// project returns the ID of the project for which the token is.
func project(p *gophercloud.ProviderClient) (string, error) {
	result, ok := p.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return "", errors.New("want version 3 of the identity service")
	}

	project, err := result.ExtractProject()
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}

	if project == nil {
		return "", errors.New("credentials are of no project")
	}

	return project.ID, nil
}

// transport bounds rate and concurrency of requests. Requests wait in it, so their timeout has to
// allow for that.
type transport struct {
	next  http.RoundTripper
	slots chan struct{} // one element per request under way
	rate  *rate.Limiter
}

func newTransport(o Options, config *tls.Config) *transport {
	next := http.DefaultTransport.(*http.Transport).Clone()
	next.TLSClientConfig = config
	next.MaxIdleConnsPerHost = o.Workers
	burst := max(1, int(o.Rate)) // after a pause, the requests of a second may be sent at once

	return &transport{next, make(chan struct{}, o.Workers), rate.NewLimiter(rate.Limit(o.Rate), burst)}
}

// permitKey is the key of WithPermit in a context.
type permitKey struct{}

// WithPermit returns a context whose requests call permit right before they are sent, after they
// have waited for their turn. If permit returns an error, the request is not sent, and fails with
// it.
func WithPermit(ctx context.Context, permit func(context.Context) error) context.Context {
	return context.WithValue(ctx, permitKey{}, permit)
}

// RoundTrip sends the request when its turn has come. The slot is free again once the response's
// header is there: Neutron has done its work by then.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case t.slots <- struct{}{}:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}

	defer func() { <-t.slots }()

	if err := t.rate.Wait(r.Context()); err != nil {
		return nil, fmt.Errorf("wait for request rate: %w", err)
	}

	if permit, ok := r.Context().Value(permitKey{}).(func(context.Context) error); ok {
		if err := permit(r.Context()); err != nil {
			return nil, fmt.Errorf("wait for permission: %w", err)
		}
	}

	return t.next.RoundTrip(r)
}
