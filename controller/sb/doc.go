// Package sb removes the chassis of deleted nodes from OVN's Southbound database. All other rows
// belong to northd and to the chassis themselves.
package sb
