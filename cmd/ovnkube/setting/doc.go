// Package setting implements a program's configuration from one table of settings. The table yields
// its flags, file keys, environment variables and keys in Open vSwitch's external_ids. The order of
// sources is command line, environment, file, external_ids, default. Each value has its origin, so
// mistakes are reported with file and line.
//
// A program makes a Set of its Table (setting.go), declares the flags (Set.Declare, flags.go),
// parses the command line, and then calls Set.Resolve (resolve.go), which adds the other sources.
package setting
