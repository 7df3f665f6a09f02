// Package sb removes from OVN's Southbound database what nodes that are gone
// have left there: their chassis. Everything else there is northd's and the
// chassis' own.
package sb
