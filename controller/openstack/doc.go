// Package openstack makes the requests of underlay mode to an OpenStack cloud. It is the only
// importer of gophercloud.
//
// Open authenticates with an entry of clouds.yaml, which should have an application credential. The
// Client renews a token that has expired. All its requests share a rate and a bound on concurrency.
//
// Observe and ObserveSetup make many requests and return the objects from which package cloud makes
// a plan. Do executes one step of the plan. The other methods make one request each, or one for
// each page of a list.
//
// Errors of requests are *Error. Kind says what the caller can do about it.
package openstack
