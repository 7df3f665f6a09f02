// Package commandline runs the command tree of a program, made of cobra's commands. It adds what
// cobra leaves out: every spelling of arguments that earlier versions understood, errors in one
// line, an error for an unknown command, and help by 'COMMAND help'.
package commandline
