package nb

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// The term is stored in a row of its own: an empty address set that no flow refers to. Among all
// tables with root rows and external_ids this is the one for which northd 23.03 computes nothing
// when external_ids change. northd copies the set once, without external_ids:
// TestTermChangeCausesNoRecompute.
const (
	termTable = nbmodel.AddressSetTable
	termRow   = "ovn-ebpf-leader"
)

// Keys of the row's external_ids.
const (
	termOwner  = "leader" // the value of ownerID: not a plan.Key, so no plan owns the row
	termNumber = "ovn-ebpf.io/term"
	termHolder = "ovn-ebpf.io/holder"
	termClaim  = "ovn-ebpf.io/claim" // random: a restored database can repeat a number, but never this
)

// ErrFenced is returned (wrapped) by writes of a leader whose term is over: another leader has
// claimed the database, or the database was emptied or restored. Nothing was written.
var ErrFenced = errors.New("the term of this leader is over")

// claimAttempts limits the attempts of Claim while others claim at the same moment.
const claimAttempts = 3

// Term is the right to write, from one claim of the database to the next.
type Term struct {
	Number uint64 // grows with each claim, from 1
	Holder string // the name of the controller's replica, for messages
	claim  string // see termClaim
}

func (t Term) String() string { return fmt.Sprintf("term %d of %s", t.Number, t.Holder) }

// Token identifies the term uniquely among all terms of any database.
func (t Term) Token() string { return fmt.Sprintf("%d %s %s", t.Number, t.Holder, t.claim) }

// Claim begins a term of the holder, also if another leader holds the database. Until the next
// Claim every transaction is conditional on this term, and transactions of earlier terms are
// refused with ErrFenced. A database without a term (new, emptied, or restored from an old backup)
// can be claimed, too.
func (d *DB) Claim(ctx context.Context, holder string) (Term, error) {
	conn, err := d.client()
	if err != nil {
		return Term{}, err
	}

	d.committing.Lock() // a running commit ends under the old term
	defer d.committing.Unlock()

	d.joins.reset() // other leaders may have changed the ports
	d.isolations.reset()

	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()

	last, _ := d.claimed()

	for range claimAttempts {
		var old *Term
		if old, err = readTerm(ctx, conn); err != nil {
			break
		}

		next := Term{Number: last.Number + 1, Holder: holder, claim: rand.Text()}
		if old != nil {
			next.Number = max(next.Number, old.Number+1)
		}

		err = replaceTerm(ctx, conn, old, next)
		d.noteWrite(err)

		if err == nil {
			d.mu.Lock()
			d.term = &next
			d.mu.Unlock()

			return next, nil
		}

		if !errors.Is(err, ErrFenced) {
			break
		}
	}

	return Term{}, fmt.Errorf("claim northbound database: %w", err)
}

// Holds returns nil if the database still has the term of the last Claim. It returns ErrFenced
// (wrapped) if it has not, and another error if that is unknown.
func (d *DB) Holds(ctx context.Context) error {
	conn, err := d.client()
	if err != nil {
		return err
	}

	term, ok := d.claimed()
	if !ok {
		return fmt.Errorf("check term: %w: never claimed", ErrFenced)
	}

	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()

	if _, err := send(ctx, conn, term.waitOp()); err != nil {
		return fmt.Errorf("check term: %w", err)
	}

	return nil
}

// Term returns the current term of the database, or nil if there is none.
func (d *DB) Term(ctx context.Context) (*Term, error) {
	conn, err := d.client()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()

	return readTerm(ctx, conn)
}

// claimed returns the term of the last Claim.
func (d *DB) claimed() (Term, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.term == nil {
		return Term{}, false
	}

	return *d.term, true
}

// readTerm reads the term from the database. It returns nil if there is none.
func readTerm(ctx context.Context, conn client.Client) (*Term, error) {
	results, err := send(ctx, conn, ovsdb.Operation{
		Op: ovsdb.OperationSelect, Table: termTable, Where: whereTerm(), Columns: []string{"external_ids"},
	})
	if err != nil || len(results[0].Rows) == 0 {
		return nil, err
	}

	ids, _ := results[0].Rows[0]["external_ids"].(ovsdb.OvsMap)
	t := &Term{Holder: textOf(ids, termHolder), claim: textOf(ids, termClaim)}
	t.Number, _ = strconv.ParseUint(textOf(ids, termNumber), 10, 64) // a malformed number counts as 0

	return t, nil
}

func textOf(m ovsdb.OvsMap, key string) string {
	s, _ := m.GoMap[key].(string)
	return s
}

// replaceTerm replaces the old term by the next one if the database still has the old term, and
// returns ErrFenced otherwise. If old is nil, the database must have no term.
func replaceTerm(ctx context.Context, conn client.Client, old *Term, next Term) error {
	row := ovsdb.Row{"external_ids": next.ids()}

	var wait, write ovsdb.Operation

	if old == nil {
		row["name"] = termRow
		wait = waitForNoTerm()
		write = ovsdb.Operation{Op: ovsdb.OperationInsert, Table: termTable, Row: row, UUIDName: "term"}
	} else {
		wait = old.waitForClaim()
		write = ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: termTable, Where: whereTerm(), Row: row}
	}

	_, err := send(ctx, conn, wait, write)

	return err
}

// ids returns the external_ids of the term's row.
func (t Term) ids() ovsdb.OvsMap {
	m := ovsdb.OvsMap{GoMap: map[any]any{}}
	for k, v := range t.pairs() {
		m.GoMap[k] = v
	}

	return m
}

func (t Term) pairs() map[string]string {
	return map[string]string{
		ownerID:    termOwner,
		termNumber: strconv.FormatUint(t.Number, 10),
		termHolder: cmp.Or(t.Holder, "unnamed"),
		termClaim:  t.claim,
	}
}

// waitOp returns the first operation of a transaction that must fail outside of this term.
func (t Term) waitOp() ovsdb.Operation {
	return waitFor(ovsdb.WaitConditionEqual, []string{"external_ids"}, ovsdb.Row{"external_ids": t.ids()})
}

// waitForClaim is like waitOp, for a row that another client wrote: it compares only the claim.
func (t Term) waitForClaim() ovsdb.Operation {
	op := waitFor(ovsdb.WaitConditionEqual, []string{"name"}, ovsdb.Row{"name": termRow})

	pairs := ovsdb.OvsMap{GoMap: map[any]any{}}
	if t.claim != "" {
		pairs.GoMap[termClaim] = t.claim
	}

	op.Where = append(op.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, pairs))

	return op
}

// waitForNoTerm returns an operation that fails if the database has a term.
func waitForNoTerm() ovsdb.Operation {
	return waitFor(ovsdb.WaitConditionNotEqual, []string{"name"}, ovsdb.Row{"name": termRow})
}

// waitFor returns the OVSDB operation "wait" (RFC 7047, section 5.2.6) for the term's row. It fails
// unless the columns are as in row (until "=="), or unless they are not (until "!="). Columns of a
// missing row are not as in row.
func waitFor(until ovsdb.WaitCondition, columns []string, row ovsdb.Row) ovsdb.Operation {
	timeout := 0 // milliseconds: a wait fails at once if its condition does not hold

	return ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: termTable, Timeout: &timeout, Where: whereTerm(),
		Columns: columns, Until: string(until), Rows: []ovsdb.Row{row},
	}
}

func whereTerm() []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, termRow)}
}

// Errors of ovsdb-server (RFC 7047, sections 5.2.6 and 4.1.3).
const (
	waitFailed = "timed out" // of a wait
	ioError    = "I/O error" // of the commit
)

// send sends operations as one transaction. If the first one is a wait for the term, and fails, it
// returns ErrFenced. Its other errors are ErrNotConnected, ErrStorage (both wrapped) and
// *refusedError.
func send(ctx context.Context, conn client.Client, ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	results, err := conn.Transact(ctx, ops...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, err) // no reply: the outcome is unknown
	}

	if ops[0].Op == ovsdb.OperationWait && len(results) > 0 && results[0].Error == waitFailed {
		return nil, ErrFenced
	}

	if r, found := storageFault(results); found {
		return nil, fmt.Errorf("%w (%s): free space on its disk", ErrStorage, r.Details)
	}

	if details, failed := ovsdb.CheckOperationResults(results, ops); failed != nil {
		for _, d := range details {
			failed = fmt.Errorf("%w: %w", failed, d)
		}

		return nil, &refusedError{failed}
	}

	return results, nil
}

// storageFault returns the result with which ovsdb-server reports that it could not write its
// file. This result follows those of the operations.
func storageFault(results []ovsdb.OperationResult) (ovsdb.OperationResult, bool) {
	for _, r := range results {
		if r.Error == ioError {
			return r, true
		}
	}

	return ovsdb.OperationResult{}, false
}
