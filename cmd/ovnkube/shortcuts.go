package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

const shortcutsDetail = `With a shortcut, the packets of one direction of an established connection of a pod bypass OVS. It is valid
for one second. Then packets go through OVS again and renew it. --flush ends all shortcuts: the next packets
of each connection go through OVS, and no packet is lost. Needs --gateway-shortcuts=auto.`

// shortcuts holds the flags of the command.
type shortcuts struct {
	finder
	count, flush, all, json bool
}

func shortcutsCommand(f *flag.FlagSet) action {
	s := &shortcuts{finder: newPinFinder(f)}
	f.BoolVar(&s.count, "count", false, "print counts only")
	f.BoolVar(&s.flush, "flush", false, "end all shortcuts")
	f.BoolVar(&s.all, "all", false, "include entries that are not in use")
	f.BoolVar(&s.json, "json", false, "JSON instead of a table")

	return s.run
}

func (s *shortcuts) run(ctx context.Context, args []string, env *environment) error {
	if err := noArguments(args); err != nil {
		return err
	}

	found, err := s.find(ctx, env)
	if err != nil {
		return err
	}

	switch {
	case s.flush:
		err = bpf.ForgetShortcuts(found.pinDir)
	case s.count:
		err = s.printCounts(env.stdout, found.pinDir)
	default:
		err = s.list(env.stdout, found.pinDir)
	}

	if errors.Is(err, bpf.ErrNoShortcuts) {
		return fmt.Errorf("%w on this node: --gateway-shortcuts is off, or its layout, mode or kernel has none (%s)",
			err, found.where())
	}

	return err
}

func (s *shortcuts) printCounts(w io.Writer, pinDir string) error {
	c, err := bpf.ReadShortcutCounts(pinDir)
	if err != nil {
		return err
	}

	if s.json {
		return json.NewEncoder(w).Encode(c)
	}

	_, err = fmt.Fprintf(w,
		"entries   %d\ncreated   %d\nrenewed   %d\nevicted   %d\nunseen    %d\nmismatch  %d\nepoch     %d\npods      %d\n",
		c.Entries, c.Created, c.Renewed, c.Evicted(), c.Unseen, c.Mismatched, c.Epoch, c.Pods)

	return err
}

// shortcutLine is an entry as printed: the packets to which it applies, and how it changes them.
type shortcutLine struct {
	From        string `json:"from"` // pod or wire
	Protocol    string `json:"protocol"`
	Source      string `json:"source"` // ADDRESS:PORT, as are the next three
	Destination string `json:"destination"`
	NewSource   string `json:"newSource"`
	NewDest     string `json:"newDestination"`
	Device      int    `json:"device"`     // interface index of the pod's device
	LeftMillis  int64  `json:"leftMillis"` // until OVS must see a packet again; 0: not in use
	Renewals    uint32 `json:"renewals"`
}

func (s *shortcuts) list(w io.Writer, pinDir string) error {
	lines := []shortcutLine{}

	err := bpf.Shortcuts(pinDir, func(e bpf.Shortcut) {
		if e.Left <= 0 && !s.all {
			return
		}

		from := "pod"
		if e.FromWire {
			from = "wire"
		}

		lines = append(lines, shortcutLine{
			From:        from,
			Protocol:    protocolName(e.Proto),
			Source:      e.Src.String(),
			Destination: e.Dst.String(),
			NewSource:   e.NewSrc.String(),
			NewDest:     e.NewDst.String(),
			Device:      e.Device,
			LeftMillis:  e.Left.Milliseconds(),
			Renewals:    e.Renewals,
		})
	})
	if err != nil {
		return err
	}

	slices.SortFunc(lines, func(a, b shortcutLine) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Protocol, b.Protocol))
	})

	if s.json {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")

		return encoder.Encode(lines)
	}

	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FROM\tPROTOCOL\tSOURCE\tDESTINATION\tBECOMES\tTO\tDEVICE\tLEFT\tRENEWALS")

	for _, l := range lines {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%dms\t%d\n", l.From, l.Protocol, l.Source,
			l.Destination, l.NewSource, l.NewDest, l.Device, l.LeftMillis, l.Renewals)
	}

	return table.Flush()
}
