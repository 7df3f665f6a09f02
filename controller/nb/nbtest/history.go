package nbtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Owned is the history of a row that an owner plans. The row may have been deleted and inserted
// again, so several rows of the database, with different UUIDs, may be part of it.
type Owned struct {
	Table, Owner, ID string

	Inserts, Deletes int
	Updates          map[string]int            // number of updates, by column
	References       map[string]map[string]int // how often a UUID was added or removed, by column and UUID
}

func (o *Owned) String() string { return fmt.Sprintf("%s %q of %s", o.Table, o.ID, o.Owner) }

// History returns the history of every row with an owner since the database was created, sorted,
// and the number of transactions. It leaves out the row of the leader's term. It reads the database
// file, so it sees all writes between any two connections. It must not be called after ovsdb-server
// has compacted the file, which happens at the earliest ten minutes after its start and not below
// 10 MB.
func (s *Server) History() ([]*Owned, int) {
	s.t.Helper()

	file, err := os.ReadFile(s.path("db"))
	if err != nil {
		s.t.Fatal(err)
	}

	rows := map[string]*Owned{}   // of all rows, by UUID
	byName := map[string]*Owned{} // of rows with an owner, by Owned.String
	transactions := 0

	// The file format of ovsdb(5): each record is a line "OVSDB JSON <length> <digest>" and a line of
	// JSON. The first record is the schema, which alone has a "cksum". Each other one is a
	// transaction: {"TABLE":{"UUID":{"COLUMN":VALUE,…}|null,…},…,"_date":…}, with null for a deleted
	// row.
	for line := range bytes.Lines(file) {
		if !bytes.HasPrefix(line, []byte(`{`)) || bytes.Contains(line, []byte(`"cksum"`)) {
			continue
		}

		var record map[string]json.RawMessage
		if err := json.Unmarshal(line, &record); err != nil {
			s.t.Fatalf("read database's file: %v", err)
		}

		transactions++

		for table, changes := range record {
			if strings.HasPrefix(table, "_") {
				continue
			}

			var changed map[string]map[string]any // column values by UUID; nil: deleted
			if err := json.Unmarshal(changes, &changed); err != nil {
				s.t.Fatalf("read database's file: table %s: %v", table, err)
			}

			for uuid, columns := range changed {
				o := rows[uuid]
				if o == nil {
					o = insertion(table, columns, byName)
					rows[uuid] = o
				}

				o.note(columns)
			}
		}
	}

	out := make([]*Owned, 0, len(byName))
	for _, o := range byName {
		if o.Owner != "leader" { // the row of the term
			out = append(out, o)
		}
	}

	slices.SortFunc(out, func(a, b *Owned) int { return cmp.Compare(a.String(), b.String()) })

	return out, transactions
}

// Transactions returns the number of transactions since the database was created, with the limits
// of History.
func (s *Server) Transactions() int {
	s.t.Helper()
	_, n := s.History()

	return n
}

// insertion returns the entry of a new row: that of earlier rows with the same owner and ID, or a
// new one. Rows without an owner get separate entries, which are not returned to the caller of
// History.
func insertion(table string, columns map[string]any, byName map[string]*Owned) *Owned {
	ids := pairs(columns["external_ids"])
	name, _ := columns["name"].(string)

	o := &Owned{
		Table: table, Owner: ids["ovn-ebpf.io/owner"], ID: cmp.Or(ids["ovn-ebpf.io/id"], name),
		Updates: map[string]int{}, References: map[string]map[string]int{},
	}
	if o.Owner != "" {
		if known := byName[o.String()]; known != nil {
			o = known
		}

		byName[o.String()] = o
	}

	// The caller notes the columns of the insert, too, but they do not count as updates.
	for column := range columns {
		o.Updates[column]--
	}

	o.Inserts++

	return o
}

// note counts the change of a row in a transaction: its changed columns, or nil for a deletion.
func (o *Owned) note(columns map[string]any) {
	if columns == nil {
		o.Deletes++
		return
	}

	for column, value := range columns {
		uuids := references(value)
		if uuids == nil {
			o.Updates[column]++
			continue
		}

		if o.References[column] == nil {
			o.References[column] = map[string]int{}
		}

		for _, uuid := range uuids {
			o.References[column][uuid]++ // a record lists added and removed references
		}
	}
}

// pairs returns the pairs of an OVSDB map: ["map",[[key,value],…]].
func pairs(v any) map[string]string {
	out := map[string]string{}

	for _, p := range elements(v, "map") {
		if kv, ok := p.([]any); ok && len(kv) == 2 {
			key, _ := kv[0].(string)
			out[key], _ = kv[1].(string)
		}
	}

	return out
}

// references returns the UUIDs of a column that has some: ["uuid",x] or ["set",[["uuid",x],…]].
func references(v any) []string {
	var out []string

	list := elements(v, "set")
	if list == nil {
		list = []any{v}
	}

	for _, e := range list {
		if pair, ok := e.([]any); ok && len(pair) == 2 && pair[0] == "uuid" {
			uuid, _ := pair[1].(string)
			out = append(out, uuid)
		}
	}

	return out
}

// elements returns the list of an OVSDB value of that kind: [kind,list].
func elements(v any, kind string) []any {
	pair, ok := v.([]any)
	if !ok || len(pair) != 2 || pair[0] != kind {
		return nil
	}

	list, _ := pair[1].([]any)

	return list
}
