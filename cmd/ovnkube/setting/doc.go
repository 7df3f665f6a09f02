// Package setting is how a program is configured: one table of settings, from
// which come its flags, the keys of its file, its environment variables and what it
// reads in Open vSwitch's external_ids. Of several sources the higher wins:
// command line, environment, file, external_ids, default. Each value knows where it
// is from, so that a mistake is told with file and line.
package setting
