package service

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ledger decides which objects are served within a Budget. The decision follows from the set of
// objects alone, not from the order in which they were added:
//
//   - Within a namespace, the oldest objects come first. An object that does not fit into what
//     older ones leave of the namespace's budget is skipped.
//   - The privileged namespaces, default and kube-system, precede the others, and may use the whole
//     total. The others share what these two leave, at most the total without the reserve.
//   - If the namespaces request more of a unit than there is, each gets the smaller of its request
//     and a fair share, which is the same for all of them. A namespace that requests less than its
//     share loses nothing. In a namespace that requests more, the oldest objects come first, and an
//     object that does not fit into the share is skipped.
//
// Age is the creation time, then the UID, then the key.
//
// Set and Delete record changes, and Settle decides. Settle takes time in proportion to the
// objects of the changed namespaces and, while the total is too small, of the namespaces that
// request more than their share. A Ledger's methods must not be called concurrently.
type Ledger struct {
	budget     Budget
	settled    Budget // with which Settle has decided
	entries    map[Key]*entry
	namespaces map[string]*account
	privileged division // of the total among default and kube-system
	others     division // of the remainder among the other namespaces

	// previousVerdicts has the entries whose verdict was set since the last Settle, with the
	// verdict before.
	previousVerdicts map[*entry]verdict
}

// verdict is the decision about an object: it fits, or the limit that it exceeds.
type verdict uint8

const (
	undecided   verdict = iota // before the first Settle
	oversized                  // exceeds its namespace's budget alone
	outOfSpace                 // exceeds its namespace's budget beside older objects
	outOfShare                 // exceeds its namespace's share of the total beside older objects
	fitsBudgets                // is served
)

// entry is an object with its verdict.
type entry struct {
	Owner
	units         Units
	isInNamespace bool // the namespace's budget has room for it
	verdict       verdict
}

// compare orders entries by age.
func (e *entry) compare(o *entry) int {
	return cmp.Or(e.Created.Compare(o.Created), cmp.Compare(e.UID, o.UID), e.Compare(o.Key))
}

// account has the objects of a namespace.
type account struct {
	namespace string
	entries   []*entry // by age
	request   Units    // sum of the entries for which the namespace's budget has room
	served    Units    // sum of the entries that are served
}

// division divides units among namespaces.
type division struct {
	accounts map[*account]struct{}
	changed  map[*account]struct{} // since the last Settle
	request  Units                 // sum of all accounts
	served   Units                 // sum of all accounts
	share    Units                 // the units that each namespace may use, or unlimited
}

// NewLedger returns an empty Ledger.
func NewLedger(b Budget) *Ledger {
	return &Ledger{
		budget:           b,
		entries:          map[Key]*entry{},
		namespaces:       map[string]*account{},
		privileged:       newDivision(),
		others:           newDivision(),
		previousVerdicts: map[*entry]verdict{},
	}
}

func newDivision() division {
	return division{accounts: map[*account]struct{}{}, changed: map[*account]struct{}{}, share: unlimited}
}

// SetTotal changes the total and the reserve to those of a budget. Settle must be called before
// Refused.
func (l *Ledger) SetTotal(b Budget) { l.budget.Total, l.budget.Reserve = b.Total, b.Reserve }

// Len returns the number of objects.
func (l *Ledger) Len() int { return len(l.entries) }

// Set records an object or its change.
func (l *Ledger) Set(o Owner, u Units) {
	e := l.entries[o.Key]
	if e != nil && e.units == u && e.UID == o.UID && e.Created.Equal(o.Created) {
		return
	}

	a := l.changedAccount(o.Namespace)

	if e == nil {
		e = &entry{}
		l.entries[o.Key] = e
	} else {
		a.remove(e)
	}

	e.Owner, e.units = o, u
	a.insert(e)
}

// Delete records that an object was deleted.
func (l *Ledger) Delete(k Key) {
	e := l.entries[k]
	if e == nil {
		return
	}

	l.changedAccount(k.Namespace).remove(e)

	delete(l.entries, k)
	delete(l.previousVerdicts, e)
}

// Settle decides about all objects. It returns the keys of those whose verdict is another one than
// at the last Settle. New objects are among them only if they are not served.
func (l *Ledger) Settle() []Key {
	if len(l.privileged.changed)+len(l.others.changed) == 0 && l.settled == l.budget {
		return nil
	}

	l.settled = l.budget

	l.divide(&l.privileged, l.budget.Total)

	// The other namespaces cannot use the reserve, even if the privileged ones leave a part of it.
	used := l.privileged.served.larger(l.budget.Reserve)
	l.divide(&l.others, l.budget.Total.minus(used))

	var out []Key

	for e, previous := range l.previousVerdicts {
		isNewAndServed := previous == undecided && e.verdict == fitsBudgets
		if e.verdict != previous && !isNewAndServed {
			out = append(out, e.Key)
		}
	}

	clear(l.previousVerdicts)

	return out
}

// Refused returns the reason why an object is not served. It is nil for objects that are served,
// and for unknown ones. The reason changes only if the object or the total changes, or if Settle
// returns its key.
func (l *Ledger) Refused(k Key) error {
	e := l.entries[k]
	if e == nil || e.verdict == fitsBudgets {
		return nil
	}

	budget, setting := l.budget.Namespace, l.budget.namespaceSetting
	why := "a namespace may have at most %s (%s)"

	switch e.verdict {
	case outOfSpace:
		why = "older objects of the namespace leave less of its budget of %s (%s)"
	case outOfShare:
		why = "older objects of the namespace leave less of its share of %s for all namespaces (%s)"

		budget, setting = l.budget.Total, l.budget.totalSetting
		if !isPrivileged(k.Namespace) {
			budget = budget.minus(l.budget.Reserve)
		}
	}

	return fmt.Errorf("the %s needs %s: "+why, e.Kind, e.units, budget.describe(e.units), setting)
}

// isPrivileged reports whether the namespace precedes the others.
func isPrivileged(namespace string) bool {
	return namespace == corev1.NamespaceDefault || namespace == metav1.NamespaceSystem
}

// changedAccount returns the account of a namespace, and marks it as changed. It adds the account
// if needed.
func (l *Ledger) changedAccount(namespace string) *account {
	d := &l.others
	if isPrivileged(namespace) {
		d = &l.privileged
	}

	a := l.namespaces[namespace]
	if a == nil {
		a = &account{namespace: namespace}
		l.namespaces[namespace] = a
		d.accounts[a] = struct{}{}
	}

	d.changed[a] = struct{}{}

	return a
}

// insert adds an entry to the account.
func (a *account) insert(e *entry) {
	i, _ := slices.BinarySearchFunc(a.entries, e, (*entry).compare)
	a.entries = slices.Insert(a.entries, i, e)
}

// remove removes an entry from the account.
func (a *account) remove(e *entry) {
	i, _ := slices.BinarySearchFunc(a.entries, e, (*entry).compare)
	a.entries = slices.Delete(a.entries, i, i+1)
}

// divide divides the total among the namespaces and decides about their objects.
func (l *Ledger) divide(d *division, total Units) {
	for a := range d.changed {
		d.request = d.request.minus(a.request)
		a.applyBudget(l.budget.Namespace)
		d.request = d.request.plus(a.request)
	}

	previous := d.share
	d.share = d.fairShare(total)

	affected := d.changed
	if d.share != previous {
		affected = d.accounts
	}

	for a := range affected {
		if _, changed := d.changed[a]; !changed && a.request.within(previous) && a.request.within(d.share) {
			continue // the namespace gets all that it requests with either share
		}

		d.served = d.served.minus(a.served)
		l.applyShare(a, d.share)
		d.served = d.served.plus(a.served)

		if len(a.entries) == 0 {
			delete(d.accounts, a)
			delete(l.namespaces, a.namespace)
		}
	}

	clear(d.changed)
}

// applyBudget decides for which objects the namespace's budget has room, and adds them up.
func (a *account) applyBudget(limit Units) {
	a.request = Units{}

	for _, e := range a.entries {
		sum := a.request.plus(e.units)

		e.isInNamespace = sum.within(limit)
		if e.isInNamespace {
			a.request = sum
		}
	}
}

// applyShare decides which objects of the namespace are served, and adds them up.
func (l *Ledger) applyShare(a *account, share Units) {
	a.served = Units{}

	for _, e := range a.entries {
		sum := a.served.plus(e.units)

		switch {
		case e.isInNamespace && sum.within(share):
			a.served = sum

			l.setVerdict(e, fitsBudgets)
		case e.isInNamespace:
			l.setVerdict(e, outOfShare)
		case e.units.within(l.budget.Namespace):
			l.setVerdict(e, outOfSpace)
		default:
			l.setVerdict(e, oversized)
		}
	}
}

// setVerdict changes an entry's verdict. Settle compares the last one with the one before the
// first change.
func (l *Ledger) setVerdict(e *entry, v verdict) {
	if e.verdict == v {
		return
	}

	if _, known := l.previousVerdicts[e]; !known {
		l.previousVerdicts[e] = e.verdict
	}

	e.verdict = v
}

// unlimited is a share that every request fits into.
var unlimited = Units{math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt}

// fairShare returns, for each unit, the largest share of each namespace with which the granted
// units, the smaller of request and share, do not exceed the total.
func (d *division) fairShare(total Units) Units {
	share := unlimited
	if d.request.within(total) {
		return share
	}

	requests := make([]int, 0, len(d.accounts))

	for i, limit := range total.numbers() {
		if *d.request.numbers()[i] <= *limit {
			continue
		}

		requests = requests[:0]
		for a := range d.accounts {
			requests = append(requests, *a.request.numbers()[i])
		}

		*share.numbers()[i] = waterLevel(requests, *limit)
	}

	return share
}

// waterLevel returns the largest number for which the sum of min(request, number) is at most
// total. The sum of the requests must be larger than total. waterLevel sorts the requests.
func waterLevel(requests []int, total int) int {
	slices.Sort(requests)

	remaining := total

	for i, request := range requests {
		// Each smaller request is granted whole. The larger ones share the remainder equally.
		if equal := remaining / (len(requests) - i); request > equal {
			return equal
		}

		remaining -= request
	}

	return math.MaxInt // not reached if the sum of the requests is larger than total
}
