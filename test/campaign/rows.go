package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"

	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
)

// rows monitors the Northbound database's rows, except those of the tenant and of short-lived pods.
// It records every change, even of milliseconds: a port group without its ports means an
// ineffective policy.
type rows struct {
	client client.Client
	cancel context.CancelFunc

	mu      sync.Mutex
	was     map[string]string // keyed by table and UUID
	changes []string
}

// watched are the compared tables, without columns that grow with the tenant's rows.
var watched = map[string]struct {
	row     model.Model
	without []string
}{
	nbmodel.LogicalSwitchPortTable:        {row: &nbmodel.LogicalSwitchPort{}},
	nbmodel.LoadBalancerTable:             {row: &nbmodel.LoadBalancer{}},
	nbmodel.ACLTable:                      {row: &nbmodel.ACL{}},
	nbmodel.LogicalRouterPortTable:        {row: &nbmodel.LogicalRouterPort{}},
	nbmodel.GatewayChassisTable:           {row: &nbmodel.GatewayChassis{}},
	nbmodel.NATTable:                      {row: &nbmodel.NAT{}},
	nbmodel.LogicalRouterStaticRouteTable: {row: &nbmodel.LogicalRouterStaticRoute{}},
	nbmodel.LogicalRouterPolicyTable:      {row: &nbmodel.LogicalRouterPolicy{}},
	nbmodel.StaticMACBindingTable:         {row: &nbmodel.StaticMACBinding{}},
	nbmodel.PortGroupTable:                {row: &nbmodel.PortGroup{}},
	nbmodel.AddressSetTable:               {row: &nbmodel.AddressSet{}},
	nbmodel.LogicalRouterTable:            {row: &nbmodel.LogicalRouter{}, without: []string{"load_balancer"}},
	nbmodel.LogicalSwitchTable:            {row: &nbmodel.LogicalSwitch{}, without: []string{"ports", "load_balancer"}},
}

// clientsGroup is a port group of the cluster's, whose ports are those by which clients come. It holds
// the ACLs of every Service with loadBalancerSourceRanges, also the tenant's (sources.go in
// controller/plan). So its ACLs may change. Those of the victim are rows that are compared themselves.
const clientsGroup = "ovnebpf_clients"

// watchRows returns after reading all current rows. The caller must close it.
func watchRows(ctx context.Context, endpoint string) (*rows, error) {
	models := map[string]model.Model{}
	for table, w := range watched {
		models[table] = w.row
	}

	schema, err := model.NewClientDBModel("OVN_Northbound", models)
	if err != nil {
		return nil, fmt.Errorf("model of the Northbound database: %w", err)
	}

	quiet := logr.Discard()

	c, err := client.NewOVSDBClient(schema, client.WithEndpoint(endpoint), client.WithLogger(&quiet))
	if err != nil {
		return nil, fmt.Errorf("client of the Northbound database: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)

	r := &rows{client: c, cancel: cancel, was: map[string]string{}}
	if err := c.Connect(ctx); err != nil {
		cancel()
		return nil, fmt.Errorf("connect to the Northbound database: %w", err)
	}

	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    r.added,
		UpdateFunc: func(table string, was, is model.Model) { r.changed(table, was, is) },
		DeleteFunc: func(table string, was model.Model) { r.changed(table, was, nil) },
	})

	if _, err := c.MonitorAll(ctx); err != nil {
		r.close()
		return nil, fmt.Errorf("monitor the Northbound database: %w", err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	shared := false

	for table := range watched {
		for uuid, row := range c.Cache().Table(table).RowsShallow() {
			if text := rowText(table, row); isVictims(text) {
				r.was[table+" "+uuid] = text
			}

			shared = shared || isShared(row)
		}
	}

	if !shared {
		r.close()
		return nil, fmt.Errorf("read the Northbound database: no port group %s", clientsGroup)
	}

	return r, nil
}

func (r *rows) close() {
	r.cancel()
	r.client.Close()
}

// differences returns the first recorded changes, with their times.
func (r *rows) differences() []string {
	r.mu.Lock()
	defer r.mu.Unlock()

	const most = 20

	return slices.Clone(r.changes[:min(len(r.changes), most)])
}

// added records a new row. The first event of a row from before the start arrives here, too.
func (r *rows) added(table string, is model.Model) {
	text := rowText(table, is)

	r.mu.Lock()
	defer r.mu.Unlock()

	if _, there := r.was[table+" "+uuidOf(is)]; len(r.was) > 0 && !there && isVictims(text) && namesVictim(text) {
		r.note("row %s is new: %s", table, text)
	}
}

func (r *rows) changed(table string, was, is model.Model) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if _, there := r.was[table+" "+uuidOf(was)]; !there {
		return
	}

	before, after := rowText(table, was), "gone"
	if is != nil {
		after = rowText(table, is)
	}

	if before != after {
		r.note("row %s was %s and became %s", table, before, after)
	}
}

// note must be called with mu held.
func (r *rows) note(format string, args ...any) {
	r.changes = append(r.changes, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// isVictims reports whether a row belongs neither to the tenant nor to a short-lived pod of the
// victim.
func isVictims(text string) bool {
	return !strings.Contains(text, hostile) && !strings.Contains(text, victim+"_new") && !strings.Contains(text, victim+"/new")
}

// namesVictim reports whether a row belongs to an object or a port of the victim. A selector of the
// tenant's may have the victim's labels.
func namesVictim(text string) bool {
	return strings.Contains(text, "/"+victim+"/") || strings.Contains(text, victim+"_")
}

func isShared(row model.Model) bool {
	group, ok := row.(*nbmodel.PortGroup)
	return ok && group.Name == clientsGroup
}

func uuidOf(row model.Model) string {
	return reflect.ValueOf(row).Elem().FieldByName("UUID").String()
}

// rowText formats the compared columns of a row, with sorted sets.
func rowText(table string, row model.Model) string {
	columns := map[string]any{}

	v := reflect.ValueOf(row).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("ovsdb")
		if name == "_uuid" || slices.Contains(watched[table].without, name) || name == "acls" && isShared(row) {
			continue
		}

		value := v.Field(i).Interface()
		if set, ok := value.([]string); ok {
			value = slices.Sorted(slices.Values(set))
		}

		columns[name] = value
	}

	text, err := json.Marshal(columns)
	if err != nil {
		panic(err) // models only have strings, numbers, maps and slices
	}

	return string(text)
}
