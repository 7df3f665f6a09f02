package openstack

import (
	"context"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/pagination"
)

// The methods of Client make their requests by call, list, create or delete, and convert the
// objects of gophercloud into those of package cloud. A conversion fails if Neutron's answer is
// malformed, for example if an address cannot be parsed.

// call makes a request, classifies its error, and reports it to Options.Done. name is for errors
// and metrics, such as "create ports".
func call[T any](c *Client, name string, request func() (T, error)) (T, error) {
	start := time.Now()
	v, err := request()
	err = classify(name, err)

	if c.done != nil {
		c.done(name, KindOf(err), time.Since(start))
	}

	return v, err
}

// list requests all pages of a list, and converts its elements. extract returns the elements of the
// pages, and object is the conversion.
func list[A, B any](
	c *Client, name string, pager pagination.Pager, ctx context.Context,
	extract func(pagination.Page) ([]A, error), object func(A) (B, error),
) ([]B, error) {
	return call(c, name, func() ([]B, error) {
		pages, err := pager.AllPages(ctx)
		if err != nil {
			return nil, err
		}

		all, err := extract(pages)
		if err != nil {
			return nil, err
		}

		return objects(all, object)
	})
}

// objects converts the elements of a list.
func objects[A, B any](all []A, object func(A) (B, error)) ([]B, error) {
	var out []B

	for _, a := range all {
		b, err := object(a)
		if err != nil {
			return nil, err
		}

		out = append(out, b)
	}

	return out, nil
}

// create makes a request that makes an object, and converts the object.
func create[A, B any](
	c *Client, name string, request func() (*A, error), object func(A) (B, error),
) (B, error) {
	return call(c, name, func() (out B, err error) {
		a, err := request()
		if err != nil {
			return out, err
		}

		return object(*a)
	})
}

// valid adapts a conversion that always succeeds to list and create.
func valid[A, B any](object func(A) B) func(A) (B, error) {
	return func(a A) (B, error) { return object(a), nil }
}

// delete runs a request to delete. If the object is gone already, it returns nil.
func (c *Client) delete(name string, request func() error) error {
	_, err := call(c, name, func() (struct{}, error) {
		err := request()
		if gophercloud.ResponseCodeIs(err, 404) {
			err = nil
		}

		return struct{}{}, err
	})

	return err
}

// withIDs returns the project's objects, and those with the IDs, which may be of other projects. An
// ID may be "". get returns the objects of a project, if id is "", or the one with an ID, if
// project is "".
func withIDs[T any](
	project string, ids []string, get func(project, id string) ([]T, error), idOf func(T) string,
) ([]T, error) {
	out, err := get(project, "")
	for _, id := range ids {
		known := slices.ContainsFunc(out, func(have T) bool { return idOf(have) == id })
		if err != nil || id == "" || known {
			continue
		}

		var more []T

		more, err = get("", id)
		out = append(out, more...)
	}

	return out, err
}
