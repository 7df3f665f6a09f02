package underlay

import (
	"maps"
	"slices"
	"sync"

	"github.com/ovn-ebpf/ovn-ebpf/controller/cloud"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// Sources of problems of a node.
const (
	ofNode = iota // malformed or conflicting values of its Node
	ofPool        // the plan of its pool, and requests for it
)

// problems has the problems of all nodes, which become Events and lines of /readyz. Its methods may
// be called concurrently.
type problems struct {
	changed loop.Signal // triggered by set

	mu  sync.Mutex                     // guards all
	all map[string]*[2][]cloud.Problem // by node and source
}

func newProblems() *problems {
	return &problems{changed: loop.NewSignal(), all: map[string]*[2][]cloud.Problem{}}
}

// set replaces a node's problems of a source, ofNode or ofPool.
func (p *problems) set(node string, source int, list []cloud.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()

	bySource := p.all[node]
	if bySource == nil {
		if len(list) == 0 {
			return
		}

		bySource = &[2][]cloud.Problem{}
		p.all[node] = bySource
	}

	bySource[source] = list
	if len(bySource[ofNode])+len(bySource[ofPool]) == 0 {
		delete(p.all, node)
	}

	p.changed.Trigger()
}

// nodeProblem is a problem of a node.
type nodeProblem struct {
	node string
	cloud.Problem
}

// list returns all problems, sorted by node, and for each node those of its Node first.
func (p *problems) list() []nodeProblem {
	p.mu.Lock()
	defer p.mu.Unlock()

	var out []nodeProblem

	for _, node := range slices.Sorted(maps.Keys(p.all)) {
		for _, problem := range slices.Concat(p.all[node][ofNode], p.all[node][ofPool]) {
			out = append(out, nodeProblem{node, problem})
		}
	}

	return out
}
