package service

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ledger decides which objects are served within a Budget. The decision follows from the set of
// objects alone, not from the order in which they were added:
//
//   - An object that is larger than its namespace's budget is not served. It counts for nothing.
//   - Within a namespace, the oldest objects are served, as many as the budget has room for. Objects
//     younger than the first one that does not fit are not served either, even if they are smaller.
//   - Of what is left, default and kube-system come first. Their oldest objects are served, as many as
//     the total has room for.
//   - The other namespaces share what remains of the total, at most the total without the reserve. Of
//     all their objects together, the oldest are served.
//
// Age is the creation time, then the UID, then the key. A change costs time in proportion to the
// objects that it affects, and a move of pointers in sorted lists. A Ledger's methods must not be
// called concurrently.
type Ledger struct {
	budget     Budget
	entries    map[Key]*entry
	namespaces map[string]*queue
	first      *queue // objects within their namespace's budget: of default and kube-system
	rest       *queue // of the other namespaces

	previousVerdicts map[*entry]verdict // of the entries that the current change has touched
}

// verdict is the decision about an object: served, or the budget that it exceeds.
type verdict uint8

const (
	unknown    verdict = iota
	oversized          // exceeds its namespace's budget alone
	outOfSpace         // exceeds its namespace's budget beside older objects
	outOfTotal         // exceeds the total beside older objects
	fitsBudgets
)

type entry struct {
	Owner
	units   Units
	verdict verdict
}

func (e *entry) compare(o *entry) int {
	return cmp.Or(e.Created.Compare(o.Created), cmp.Compare(e.UID, o.UID), e.Compare(o.Key))
}

// NewLedger returns an empty Ledger.
func NewLedger(b Budget) *Ledger {
	l := &Ledger{
		budget:           b,
		entries:          map[Key]*entry{},
		namespaces:       map[string]*queue{},
		previousVerdicts: map[*entry]verdict{},
	}
	mark := func(e *entry, fits bool) {
		l.setVerdict(e, outOfTotal)

		if fits {
			l.setVerdict(e, fitsBudgets)
		}
	}

	l.first, l.rest = &queue{limit: b.Total, mark: mark}, &queue{mark: mark}

	return l
}

// Len returns the number of objects.
func (l *Ledger) Len() int { return len(l.entries) }

// Set adds an object, or changes it. It returns the keys of the objects that are served now and
// were not before, or the reverse. A new object that is not served is among them.
func (l *Ledger) Set(o Owner, u Units) []Key {
	e := l.entries[o.Key]
	if e != nil && e.units == u && e.UID == o.UID && e.Created.Equal(o.Created) {
		return nil
	}

	if e == nil {
		e = &entry{}
		l.entries[o.Key] = e
	} else {
		l.removeEntry(e)
	}

	e.Owner, e.units = o, u
	if u.within(l.budget.Namespace) {
		q := l.namespaces[o.Namespace]
		if q == nil {
			q = &queue{limit: l.budget.Namespace, mark: l.updateTotal}
			l.namespaces[o.Namespace] = q
		}

		q.insert(e)
	} else {
		l.setVerdict(e, oversized)
	}

	return l.settle(o.Namespace)
}

// Delete removes an object, and returns the keys of others as Set does.
func (l *Ledger) Delete(k Key) []Key {
	e := l.entries[k]
	if e == nil {
		return nil
	}

	l.removeEntry(e)
	delete(l.entries, k)
	delete(l.previousVerdicts, e)

	return l.settle(k.Namespace)
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
	case outOfTotal:
		why = "older objects of all namespaces leave less of the %s that nodes have room for (%s)"

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

// totalQueue returns the queue of the entry's namespace in the total.
func (l *Ledger) totalQueue(e *entry) *queue {
	if privileged(e.Namespace) {
		return l.first
	}

	return l.rest
}

// updateTotal is called when an entry enters or leaves its namespace's budget.
func (l *Ledger) updateTotal(e *entry, fits bool) {
	if fits {
		l.totalQueue(e).insert(e)
		return
	}

	if e.verdict == fitsBudgets || e.verdict == outOfTotal {
		l.totalQueue(e).remove(e)
	}

	l.setVerdict(e, outOfSpace)
}

// removeEntry takes an entry out of all queues.
func (l *Ledger) removeEntry(e *entry) {
	if e.verdict != oversized {
		l.namespaces[e.Namespace].remove(e)
	}

	l.setVerdict(e, unknown)
}

func (l *Ledger) setVerdict(e *entry, v verdict) {
	if _, ok := l.previousVerdicts[e]; !ok {
		l.previousVerdicts[e] = e.verdict
	}

	e.verdict = v
}

// settle lets objects in or out after a change of a namespace. It returns the keys of those that
// changed.
func (l *Ledger) settle(namespace string) []Key {
	if q := l.namespaces[namespace]; q != nil {
		q.settle()

		if len(q.entries) == 0 {
			delete(l.namespaces, namespace)
		}
	}

	l.first.settle()
	l.rest.limit = l.budget.Total.minus(l.first.used.most(l.budget.Reserve))
	l.rest.settle()

	var out []Key

	for e, was := range l.previousVerdicts {
		if e.verdict != was && (was != unknown || e.verdict != fitsBudgets) {
			out = append(out, e.Key)
		}
	}

	clear(l.previousVerdicts)

	return out
}

// queue lets the first of its entries in, as many as the limit has room for.
type queue struct {
	entries []*entry // by age
	fitting int      // the first ones, which are in
	used    Units    // of these
	limit   Units
	mark    func(e *entry, fits bool) // called when an entry enters the queue, gets in or out, or leaves while it is in
}

func (q *queue) find(e *entry) int {
	i, _ := slices.BinarySearchFunc(q.entries, e, (*entry).compare)
	return i
}

// insert and remove must be followed by settle.
func (q *queue) insert(e *entry) {
	i := q.find(e)
	q.entries = slices.Insert(q.entries, i, e)

	fits := i < q.fitting
	if fits {
		q.fitting, q.used = q.fitting+1, q.used.plus(e.units)
	}

	q.mark(e, fits)
}

func (q *queue) remove(e *entry) {
	i := q.find(e)
	q.entries = slices.Delete(q.entries, i, i+1)

	if i < q.fitting {
		q.fitting, q.used = q.fitting-1, q.used.minus(e.units)
		q.mark(e, false)
	}
}

func (q *queue) settle() {
	for q.fitting > 0 && !q.used.within(q.limit) {
		q.fitting--
		e := q.entries[q.fitting]
		q.used = q.used.minus(e.units)
		q.mark(e, false)
	}

	for q.fitting < len(q.entries) {
		e := q.entries[q.fitting]
		if !q.used.plus(e.units).within(q.limit) {
			return
		}

		q.fitting, q.used = q.fitting+1, q.used.plus(e.units)
		q.mark(e, true)
	}
}
