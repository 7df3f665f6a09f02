package service

import (
	"errors"
	"fmt"
	"math/bits"
)

// Default values of Shares.
const (
	DefaultNamespaceFrontends = 16384
	DefaultTableShare         = 90
	DefaultFlowsPerNode       = 5120
)

// leastNodes is the number of nodes for which a small cluster has shares.
const leastNodes = 8

// Shares are the settings of budgets. Controller and agents must have the same. 0 stands for the
// default.
type Shares struct {
	// Namespace is the number of frontends that the Services of a namespace may have. The
	// namespace gets the same share of the other tables, and flowsPerFrontend flows for each
	// frontend.
	Namespace int
	Tables    int // percent of a node's tables for Services; the rest is for pods' host ports
	// FlowsPerNode is the number of flows that each node adds to the total of all Services. All
	// nodes have the flows of all Services, and OVN computes them again at many changes, so the
	// total must not be much larger than a cluster of this size needs.
	FlowsPerNode int
}

// flowsPerFrontend is the number of flows for each frontend in a namespace's budget.
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

	if s.FlowsPerNode < 0 {
		errs = append(errs, fmt.Errorf("flows of Services per node: %d is negative", s.FlowsPerNode))
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

	if s.FlowsPerNode == 0 {
		s.FlowsPerNode = DefaultFlowsPerNode
	}

	return s
}

// RoundUp returns the lowest power of two that is not below n, and 1 if n is negative. Budgets use
// it for numbers of nodes, namespaces and pods, so that the budgets seldom change.
func RoundUp(n int) int {
	if n <= 1 {
		return 1
	}

	return 1 << bits.Len(uint(n-1))
}

// CountedNodes returns the number of nodes on which shares depend: RoundUp of the cluster's nodes,
// and at least leastNodes.
func CountedNodes(n int) int { return max(leastNodes, RoundUp(n)) }

// Budget bounds the units of the objects in a Ledger.
type Budget struct {
	Namespace Units // of each namespace
	Total     Units // of all namespaces together
	Reserve   Units // the part of Total that only the privileged namespaces use

	namespaceSetting string // the flag that changes Namespace
	totalSetting     string // the flags that change Total
}

// Services returns the budget of all Services in a cluster with this number of nodes.
func (s Shares) Services(nodes int) Budget {
	s = s.withDefaults()
	total := s.tables()
	total.Flows = int(min(int64(s.FlowsPerNode)*int64(CountedNodes(nodes)), maxFlows))
	namespace := TableUnits().times(s.Namespace, TableUnits().Frontends)
	namespace.Flows = flowsPerFrontend * s.Namespace

	return Budget{
		Namespace:        namespace,
		Total:            total,
		Reserve:          total.times(1, 10),
		namespaceSetting: "--namespace-frontends",
		totalSetting:     "--service-table-share, --service-flows-per-node",
	}
}

// tables returns the room that Services have in a node's tables.
func (s Shares) tables() Units { return TableUnits().times(s.withDefaults().Tables, 100) }

// HostPorts returns the budget of the pods with host ports on one node: what Services leave of the
// node's tables.
func (s Shares) HostPorts() Budget {
	total := TableUnits().minus(s.tables())

	return Budget{
		Namespace:        total.times(1, 4),
		Total:            total,
		Reserve:          total.times(1, 10),
		namespaceSetting: "--service-table-share",
		totalSetting:     "--service-table-share",
	}
}
