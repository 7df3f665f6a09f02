//go:build !slow

package main

import "errors"

func (*ebpf) plant() error { return errors.New("plant slower programs: built without the tag slow") }
