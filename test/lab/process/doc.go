// Package process starts the lab's daemons, remembers them in files so that
// another program can stop them later, and stops them, whole process group and
// all, without ever signalling a process that only inherited the number.
package process
