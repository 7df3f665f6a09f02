// Package ovsdb holds the schemas that this project is written against, and generates the Go
// models of the tables it uses from them: packages nb and vswitch.
//
// The schemas are those of the oldest supported versions: OVN 23.03 and OVS 3.1 (Debian 12).
// That of the Southbound database is for tests alone, which run northd. Run "make generate" after a
// change of a schema, or of the tables in gen.go.
package ovsdb
