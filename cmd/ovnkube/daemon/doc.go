// Package daemon implements the daemon options of OVS: a pid file, detaching, and log levels per
// destination (ovs-vswitchd(8)). It also reports readiness to systemd (sd_notify(3)).
//
// A program calls Options.Start after parsing its command line. In the process that the user
// started with --detach, Start returns ErrDetached: the same program works in the background.
// There, and without --detach, the program continues and reports its Progress.
package daemon
