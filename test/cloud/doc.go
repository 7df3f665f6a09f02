// Package cloud starts an OpenStack cloud for tests: Keystone and Neutron, with Neutron's own
// databases of OVN. They are Debian's packages (test/packages cloud), configured in a directory of the
// caller, and listen on the loopback address. There are no hypervisors and no ovn-northd yet, so
// what Neutron plans is not carried out.
package cloud
