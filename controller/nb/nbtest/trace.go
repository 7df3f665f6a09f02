package nbtest

import (
	"os/exec"
)

// Trace returns the output of ovn-trace for a packet that enters the datapath and begins a
// connection.
func (o *OVN) Trace(datapath, packet string) string {
	o.t.Helper()

	out, err := exec.Command("ovn-trace", "--db="+o.southbound.Endpoint, "--no-leader-only",
		"--ct=new", "--ct=new", "--ct=new", datapath, packet).CombinedOutput()
	if err != nil {
		o.t.Fatalf("trace %s: %v: %s", packet, err, out)
	}

	return string(out)
}

// AddressSet returns the addresses of a set in the Southbound database, or "[]" if it has none.
func (o *OVN) AddressSet(name string) string {
	o.t.Helper()
	return o.sbctl("--bare", "--columns=name,addresses", "find", "Address_Set", "name="+name)
}
