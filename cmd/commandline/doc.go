// Package commandline runs a program's tree of cobra commands. It adds to cobra: the argument
// spellings of all earlier versions, errors on one line, errors for unknown commands, and help by
// 'COMMAND help'.
package commandline
