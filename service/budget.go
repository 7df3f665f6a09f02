package service

import (
	"errors"
	"fmt"
)

// Default values of Shares.
const (
	DefaultNamespaceFrontends = 16384
	DefaultTableShare         = 90
)

// Shares are the settings of budgets. Controller and agents must have the same. 0 stands for the
// default.
type Shares struct {
	// Namespace is the number of frontends that the Services of a namespace may have. The
	// namespace gets the same share of the other tables, and flowsPerFrontend flows for each
	// frontend.
	Namespace int
	Tables    int // percent of a node's tables for Services; the rest is for pods' host ports
}

// flowsPerFrontend is the number of flows for each frontend in a namespace's budget. Together
// with the flows of the namespace's policies (docs/networkpolicy.md), the default budget is less
// than the 60,000 flows that a tenant may cost a node.
const flowsPerFrontend = 2

// Validate returns an error for numbers that make no budget.
func (s Shares) Validate() error {
	var errs []error
	if s.Namespace < 0 {
		errs = append(errs, fmt.Errorf("frontends of a namespace: %d is negative", s.Namespace))
	}

	if s.Tables < 0 || s.Tables > 95 {
		errs = append(errs,
			fmt.Errorf("share of Services in the tables: %d is not 1 to 95 percent", s.Tables))
	}

	return errors.Join(errs...)
}

// withDefaults replaces settings that are 0 by their default values.
func (s Shares) withDefaults() Shares {
	if s.Namespace == 0 {
		s.Namespace = DefaultNamespaceFrontends
	}

	if s.Tables == 0 {
		s.Tables = DefaultTableShare
	}

	return s
}

// Budget bounds the units of the objects in a Ledger.
type Budget struct {
	Namespace Units // of each namespace
	Total     Units // of all namespaces together
	Reserve   Units // the part of Total that only the privileged namespaces use

	namespaceSetting string // the flag that changes Namespace
	totalSetting     string // the flag that changes Total
}

// Services returns the budget of all Services.
func (s Shares) Services() Budget {
	s = s.withDefaults()
	total := TableUnits().times(s.Tables, 100)
	namespace := TableUnits().times(s.Namespace, TableUnits().Frontends)
	namespace.Flows = flowsPerFrontend * s.Namespace

	return Budget{
		Namespace:        namespace,
		Total:            total,
		Reserve:          total.times(1, 10),
		namespaceSetting: "--namespace-frontends",
		totalSetting:     "--service-table-share",
	}
}

// HostPorts returns the budget of the pods with host ports on one node: what Services leave of the
// node's tables.
func (s Shares) HostPorts() Budget {
	total := TableUnits().minus(s.Services().Total)

	return Budget{
		Namespace:        total.times(1, 4),
		Total:            total,
		Reserve:          total.times(1, 10),
		namespaceSetting: "--service-table-share",
		totalSetting:     "--service-table-share",
	}
}
