package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"
)

// world is what is stored, and a clock.
type world struct {
	t    *testing.T
	now  time.Time
	data Data
}

// renew stores what Renew returns, and returns the names.
func (w *world) renew() []string {
	w.t.Helper()
	want, err := Renew(w.now, w.data)
	if err != nil {
		w.t.Fatal(err)
	}
	maps.Copy(w.data, want)
	return slices.Sorted(maps.Keys(want))
}

// verifies returns nil if one holder's certificate is accepted now by another's bundle.
func (w *world) verifies(cert, bundle map[string][]byte, file string) error {
	block, _ := pem.Decode(cert["cert.pem"])
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle[file]) {
		w.t.Fatal("no certificates in the bundle")
	}
	_, err = c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: w.now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// TestRenewForYears: certificates are always valid, and a holder whose files are up to
// handover old still knows every other: through renewals and changes of the authority.
func TestRenewForYears(t *testing.T) {
	w := &world{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), data: Data{}}
	if got := w.renew(); len(got) != len(Secrets()) {
		t.Fatalf("at first %v", got)
	}
	if got := w.renew(); len(got) != 0 {
		t.Fatalf("at once again %v", got)
	}
	const step = handover * 9 / 10
	before := maps.Clone(w.data)
	changes, settled, authorities := 0, false, map[string]bool{}
	for end := w.now.AddDate(15, 0, 0); w.now.Before(end); w.now = w.now.Add(step) {
		changed := len(w.renew())
		if changed == 0 && settled {
			continue
		}
		changes, settled = changes+changed, changed == 0
		authorities[string(w.data[central]["ca.crt"])] = true
		for _, pair := range [][2]Data{{w.data, w.data}, {w.data, before}, {before, w.data}} {
			node, member := "ovn-ebpf-chassis", "ovn-ebpf-central"
			err := errors.Join(
				w.verifies(pair[0][node], pair[1][member], "sb-cacert.pem"), w.verifies(pair[0][member], pair[1][node], "cacert.pem"),
				w.verifies(pair[0][member], pair[1][member], "cacert.pem"),
			)
			if err != nil {
				t.Fatalf("%s: %v", w.now, err)
			}
			if w.verifies(pair[0][node], pair[1][member], "cacert.pem") == nil {
				t.Fatalf("%s: a node's certificate opens the Northbound database", w.now)
			}
		}
		before = maps.Clone(w.data)
	}
	// Three holders each 60 days, and both authorities twice each.
	if len(authorities) < 3 || changes < 3*15*365/61 || changes > 4*15*365/60 {
		t.Errorf("%d authorities, %d changes", len(authorities), changes)
	}
}

// TestRenewRepairs: what is missing or damaged is made again, but for the authority.
func TestRenewRepairs(t *testing.T) {
	w := &world{t: t, now: time.Now(), data: Data{}}
	w.renew()
	delete(w.data, "ovn-ebpf-central")
	if got := w.renew(); !slices.Equal(got, []string{"ovn-ebpf-central"}) {
		t.Errorf("after a Secret was deleted: %v", got)
	}
	databases := maps.Clone(w.data["ovn-ebpf-databases"])
	databases["ovnsb-cert.pem"] = []byte("x")
	w.data["ovn-ebpf-databases"] = databases
	if got := w.renew(); !slices.Equal(got, []string{"ovn-ebpf-databases"}) {
		t.Errorf("after a certificate was damaged: %v", got)
	}
	w.data["ovn-ebpf-chassis"] = map[string][]byte{"privkey.pem": w.data["ovn-ebpf-central"]["privkey.pem"], "cert.pem": w.data["ovn-ebpf-chassis"]["cert.pem"]}
	if got := w.renew(); !slices.Equal(got, []string{"ovn-ebpf-chassis"}) {
		t.Errorf("with another's key: %v", got)
	}
	w.data[central] = map[string][]byte{"ca.crt": []byte("x")}
	if _, err := Renew(w.now, w.data); err == nil {
		t.Error("a damaged authority is replaced")
	}
}
