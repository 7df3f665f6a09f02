// Package setting implements a program's configuration from one table of settings. The table yields
// its flags, file keys, environment variables and keys in Open vSwitch's external_ids. The order of
// sources is command line, environment, file, external_ids, default. Each value knows its origin,
// so mistakes are reported with file and line.
package setting
