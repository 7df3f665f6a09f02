// Package process starts the lab's daemons and records them in files, so that another program can
// stop them later with their process groups. It never signals an unrelated process that has reused
// a process ID.
package process
