package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Object is a JSON object.
type Object = map[string]any

// API makes requests of a user to a service, without the product's client.
type API struct {
	client      *http.Client
	base, token string
}

// login gets a token for the project.
func (a *API) login(ctx context.Context, keystone, user, project string) error {
	domain := Object{"id": "default"}

	r, _, err := a.request(ctx, "POST", keystone+"/v3/auth/tokens", Object{"auth": Object{
		"identity": Object{"methods": []string{"password"}, "password": Object{
			"user": Object{"name": user, "domain": domain, "password": password},
		}},
		"scope": Object{"project": Object{"name": project, "domain": domain}},
	}})
	if err != nil {
		return err
	}

	a.token = r.Header.Get("X-Subject-Token")
	if a.token == "" {
		return errors.New("log in: no token")
	}

	return nil
}

// Do makes a request and returns the body of its response. A status of 300 or more is an error.
func (a *API) Do(ctx context.Context, method, path string, body any) (Object, error) {
	_, o, err := a.request(ctx, method, a.base+path, body)
	return o, err
}

func (a *API) request(ctx context.Context, method, url string, body any) (*http.Response, Object, error) {
	var content io.Reader

	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, nil, err
		}

		content = bytes.NewReader(b)
	}

	r, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return nil, nil, err
	}

	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Auth-Token", a.token)

	response, err := a.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()

	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, nil, err
	}

	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, nil, fmt.Errorf("%s %s: status %d: %s", method, url, response.StatusCode, raw)
	}

	o := Object{}
	if len(raw) > 0 {
		err = json.Unmarshal(raw, &o)
	}

	return response, o, err
}

// Batch makes requests until one fails.
type Batch struct {
	API *API
	Err error // the first error
}

// Create makes an object of Neutron of the kind, such as "security_group", and returns its ID.
func (b *Batch) Create(ctx context.Context, kind string, o Object) string {
	return b.post(ctx, "/v2.0/"+strings.ReplaceAll(kind, "_", "-")+"s", kind, o)
}

func (b *Batch) post(ctx context.Context, path, kind string, o Object) string {
	if b.Err != nil {
		return ""
	}

	made, err := b.API.Do(ctx, "POST", path, Object{kind: o})
	if err != nil {
		b.Err = err
		return ""
	}

	return made[kind].(Object)["id"].(string)
}

// Put makes a PUT request.
func (b *Batch) Put(ctx context.Context, path string, body any) {
	if b.Err == nil {
		_, b.Err = b.API.Do(ctx, "PUT", path, body)
	}
}
