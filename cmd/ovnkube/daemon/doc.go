// Package daemon is what the daemons of OVS let an operator ask for on the command
// line: a pid file, going to the background, and how much goes to which log
// (ovs-vswitchd(8), options of a daemon and for logging). It also tells systemd how
// far the process is (sd_notify(3)).
//
// A program calls Options.Start once its command line is read: in the process that
// the user started with --detach it returns ErrDetached: another works, the same program in
// the background. There, and without --detach, the program goes on and reports its Progress.
package daemon
