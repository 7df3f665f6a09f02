// Package ovsdb holds the schemas this project is written against and the
// Go models generated from them, one package a database: nb, sb and vswitch.
//
// The schemas are those of the oldest versions supported: OVN 23.03 and
// OVS 3.1 (Debian 12). Run "make generate" after replacing one.
package ovsdb
