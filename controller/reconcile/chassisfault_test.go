package reconcile

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/sb"
)

func TestChassisFault(t *testing.T) {
	right := map[string]sb.Chassis{"id": {Hostname: "node1", IPs: []string{"192.0.2.1", "2001:db8::1"}}}
	for name, tt := range map[string]struct {
		all         map[string]sb.Chassis
		annotations []string
		want        string
	}{
		"right":                      {right, []string{annotation.ChassisID, "id", annotation.TunnelAddress, "192.0.2.1"}, ""},
		"IPv6":                       {right, []string{annotation.ChassisID, "id", annotation.TunnelAddress, "2001:db8::1"}, ""},
		"no agent yet":               {nil, nil, ""},
		"an older agent":             {nil, []string{annotation.ChassisID, "id"}, ""},
		"the system-id is another's": {nil, []string{annotation.ChassisID, "id", annotation.TunnelAddress, "192.0.2.1", annotation.ChassisTakenBy, "node2"}, ""},
		"not there":                  {nil, []string{annotation.ChassisID, "id", annotation.TunnelAddress, "192.0.2.1"}, `chassis "id" of node node1 is not in the Southbound database`},
		"another host's":             {map[string]sb.Chassis{"id": {Hostname: "node2", IPs: []string{"192.0.2.1"}}}, []string{annotation.ChassisID, "id", annotation.TunnelAddress, "192.0.2.1"}, `is registered by host "node2"`},
		"another address":            {right, []string{annotation.ChassisID, "id", annotation.TunnelAddress, "192.0.2.9"}, "has the tunnel address 192.0.2.1, 2001:db8::1 in the Southbound database, not 192.0.2.9"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Annotations: map[string]string{}}}
			for i := 0; i < len(tt.annotations); i += 2 {
				n.Annotations[tt.annotations[i]] = tt.annotations[i+1]
			}

			got := chassisFault(n, tt.all)
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("fault %q, want %q", got, tt.want)
			}
		})
	}
}
