// Package sb lists the chassis in OVN's Southbound database, and removes those of deleted nodes.
// All other rows belong to northd and to the chassis themselves.
//
// The leader removes a chassis by DB.RemoveChassis. If the controller must not write to the
// database, another process removes them by RemoveStale.
package sb
