// Package openstack makes the requests of underlay mode to an OpenStack cloud. It is the only importer
// of gophercloud.
//
// Open authenticates with an entry of clouds.yaml; an application credential is meant. A token that
// has expired is renewed by itself. Each method of Client is one request, but for lists, which may
// have several pages. All requests of a Client share a rate and a bound on concurrency. Observe
// and ObserveSetup return what package cloud plans from, and Do executes a step of its plan.
//
// Errors of requests are *Error. Its Kind says what the caller can do about it.
package openstack
