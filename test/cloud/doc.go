// Package cloud starts an OpenStack cloud for tests: Keystone and Neutron 26 of Debian 13, and their
// MariaDB.
//
// Their programs are in a root directory of their own, which the script root makes once. Nothing
// is installed on the machine. Each program runs in that directory with mounts of its own, which
// end with it. The cloud's databases, configuration and logs are in a directory of the caller, which
// the programs see as /cloud.
//
// Start starts a cloud on loopback addresses with OVN's databases, but without hypervisors and
// ovn-northd. Package lab starts one (Run) whose Neutron writes to the databases of a lab.
package cloud
