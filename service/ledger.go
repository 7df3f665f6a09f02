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
//   - Within a namespace, the oldest objects come first. An object that does not fit into what older
//     ones leave of the namespace's budget is skipped.
//   - The namespaces default and kube-system precede the others, and may use the whole total. The
//     others share what these two leave, at most the total without the reserve.
//   - If the namespaces request more of a unit than there is, each gets the smaller of its request
//     and a fair share, which is the same for all of them. A namespace that requests less than its
//     share loses nothing. In a namespace that requests more, the oldest objects come first, and an
//     object that does not fit into the share is skipped.
//
// Age is the creation time, then the UID, then the key.
//
// Set and Delete record changes, and Settle decides. Settle takes time in proportion to the objects
// of the changed namespaces and, while the total is too small, of the namespaces that request more
// than their share. A Ledger's methods must not be called concurrently.
type Ledger struct {
	budget     Budget
	entries    map[Key]*entry
	namespaces map[string]*account
	first      division // of the total among default and kube-system
	rest       division // of the remainder among the other namespaces

	previousVerdicts map[*entry]verdict // of entries whose verdict was set since the last Settle
}

// verdict is the decision about an object: served, or the budget that it exceeds.
type verdict uint8

const (
	unknown    verdict = iota
	oversized          // exceeds its namespace's budget alone
	outOfSpace         // exceeds its namespace's budget beside older objects
	outOfShare         // exceeds its namespace's share of the total beside older objects
	fitsBudgets
)

type entry struct {
	Owner
	units     Units
	requested bool // the namespace's budget has room for it
	verdict   verdict
}

func (e *entry) compare(o *entry) int {
	return cmp.Or(e.Created.Compare(o.Created), cmp.Compare(e.UID, o.UID), e.Compare(o.Key))
}

// account has the objects of a namespace.
type account struct {
	namespace string
	entries   []*entry // by age
	request   Units    // of the entries for which the namespace's budget has room
	served    Units    // of the entries that are served
}

// division divides units among namespaces.
type division struct {
	accounts map[*account]struct{}
	changed  map[*account]struct{} // since the last Settle
	request  Units                 // of all accounts
	served   Units                 // of all accounts
	share    Units                 // that each namespace may use; math.MaxInt is no limit
}

func newDivision() division {
	return division{accounts: map[*account]struct{}{}, changed: map[*account]struct{}{}, share: unlimited}
}

// NewLedger returns an empty Ledger.
func NewLedger(b Budget) *Ledger {
	return &Ledger{
		budget:           b,
		entries:          map[Key]*entry{},
		namespaces:       map[string]*account{},
		first:            newDivision(),
		rest:             newDivision(),
		previousVerdicts: map[*entry]verdict{},
	}
}

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

// Settle decides about all objects. It returns the keys of those that are served now and were not
// at the last Settle, or the reverse. New objects that are not served are among them.
func (l *Ledger) Settle() []Key {
	l.settle(&l.first, l.budget.Total)
	l.settle(&l.rest, l.budget.Total.minus(l.first.served.most(l.budget.Reserve)))

	var out []Key

	for e, was := range l.previousVerdicts {
		if e.verdict != was && (was != unknown || e.verdict != fitsBudgets) {
			out = append(out, e.Key)
		}
	}

	clear(l.previousVerdicts)

	return out
}

// Refused returns the reason why an object is not served. It is nil for objects that are served,
// and for unknown ones. It changes only together with the object or with whether it is served.
func (l *Ledger) Refused(k Key) error {
	e := l.entries[k]
	if e == nil || e.verdict == fitsBudgets {
		return nil
	}

	budget, setting := l.budget.Namespace, l.budget.settings[0]
	why := "a namespace may have at most %s (%s)"

	switch e.verdict {
	case outOfSpace:
		why = "older objects of the namespace leave less of its budget of %s (%s)"
	case outOfShare:
		why = "older objects of the namespace leave less of its share of the %s that nodes have room for (%s)"

		budget, setting = l.budget.Total, l.budget.settings[1]
		if !privileged(k.Namespace) {
			budget = budget.minus(l.budget.Reserve)
		}
	}

	return fmt.Errorf("the %s needs %s: "+why, e.Kind, e.units, budget.describe(e.units), setting)
}

// privileged reports whether the namespace comes before the others.
func privileged(namespace string) bool {
	return namespace == corev1.NamespaceDefault || namespace == metav1.NamespaceSystem
}

// changedAccount returns the account of a namespace, for a change. It adds the account if needed.
func (l *Ledger) changedAccount(namespace string) *account {
	d := &l.rest
	if privileged(namespace) {
		d = &l.first
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

// settle divides the total among the namespaces and decides about their objects.
func (l *Ledger) settle(d *division, total Units) {
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
		if _, changed := d.changed[a]; !changed && a.request.within(previous.least(d.share)) {
			continue // it gets its request with either share
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

// applyBudget decides for which objects the namespace's budget has room.
func (a *account) applyBudget(limit Units) {
	a.request = Units{}

	for _, e := range a.entries {
		sum := a.request.plus(e.units)
		if e.requested = sum.within(limit); e.requested {
			a.request = sum
		}
	}
}

// applyShare decides which objects are served.
func (l *Ledger) applyShare(a *account, share Units) {
	a.served = Units{}

	for _, e := range a.entries {
		sum := a.served.plus(e.units)

		switch {
		case e.requested && sum.within(share):
			a.served = sum

			l.setVerdict(e, fitsBudgets)
		case e.requested:
			l.setVerdict(e, outOfShare)
		case e.units.within(l.budget.Namespace):
			l.setVerdict(e, outOfSpace)
		default:
			l.setVerdict(e, oversized)
		}
	}
}

func (l *Ledger) setVerdict(e *entry, v verdict) {
	if e.verdict == v {
		return
	}

	if _, ok := l.previousVerdicts[e]; !ok {
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

// waterLevel returns the largest number for which the sum of min(request, number) is at most total.
// The sum of the requests must be larger. It sorts the requests.
func waterLevel(requests []int, total int) int {
	slices.Sort(requests)

	left := total

	for i, request := range requests {
		if equal := left / (len(requests) - i); request > equal {
			return equal
		}

		left -= request
	}

	return math.MaxInt
}
