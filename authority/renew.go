package authority

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Lifetimes of certificates. When a third of its life is left, a member's certificate is replaced,
// and the successor of an authority is published. Nodes decide themselves when they renew theirs
// (RunNode).
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	memberLife    = 90 * 24 * time.Hour // also the default of Authority.NodeLife
)

// Handover is the default time between the publication of a new authority and its first signature.
// In this time, the kubelet of every node updates the files with the certificates to trust.
const Handover = 24 * time.Hour

// clockSkew is the difference of clocks that is tolerated: certificates begin this long ago.
const clockSkew = time.Hour

// Secrets of the two authorities. Nodes have an authority of their own. Only the server of the
// Southbound database's port for nodes trusts it, so a node's certificate opens no other port.
const (
	centralSecret = "ovn-ebpf-ca"      // of the databases' members, northd and the controller
	nodesSecret   = "ovn-ebpf-node-ca" // of nodes
)

// rotateKey is a key of an authority's Secret, with any value. An administrator adds it to replace
// the authority before its life is over.
const rotateKey = "rotate"

// authoritySecrets are the Secrets of authorities. Their keys are those of authorityState.data.
var authoritySecrets = []string{centralSecret, nodesSecret}

// memberSecret is a Secret with a certificate, under the file names that its readers expect.
type memberSecret struct {
	name       string
	commonName string // of the certificate
	files      []memberFiles
}

// memberFiles are keys of a Secret, which its readers see as files.
type memberFiles struct {
	key, cert string
	ca        string // the certificates to trust, those of the authority trusted
	trusted   string // an authority's Secret
}

// memberSecrets returns the Secrets with a certificate of the central authority. The databases'
// servers verify the authority of a client's certificate, but not its name.
func memberSecrets() []memberSecret {
	return []memberSecret{
		{"ovn-ebpf-central", "ovn-central", []memberFiles{
			{"privkey.pem", "cert.pem", "cacert.pem", centralSecret},
			{"privkey.pem", "cert.pem", "node-cacert.pem", nodesSecret},
		}},
		{"ovn-ebpf-databases", "ovn-ebpf-controller", []memberFiles{
			{"ovnnb-privkey.pem", "ovnnb-cert.pem", "ovnnb-ca.cert", centralSecret},
			{"ovnsb-privkey.pem", "ovnsb-cert.pem", "ovnsb-ca.cert", centralSecret},
		}},
	}
}

// secretNames returns the names of all Secrets, those of the authorities first.
func secretNames() []string {
	out := slices.Clone(authoritySecrets)
	for _, m := range memberSecrets() {
		out = append(out, m.name)
	}

	return out
}

// Data are the contents of Secrets, by name and key.
type Data map[string]map[string][]byte

// Renew returns the Secrets that must be written, given those that exist. It replaces an unreadable
// certificate, but returns an error for an unreadable authority: replacing it would disconnect all
// clients that have its certificates.
func Renew(now time.Time, handover time.Duration, existing Data) (Data, error) {
	changed, authorities := Data{}, map[string]authorityState{}

	for _, name := range authoritySecrets {
		state, err := renewAuthority(now, handover, name, existing[name])
		if err != nil {
			return nil, err
		}

		authorities[name] = state

		if state.hasChanged {
			if changed[name], err = state.data(); err != nil {
				return nil, err
			}
		}
	}

	for _, m := range memberSecrets() {
		data, err := m.renew(now, existing[m.name], authorities)
		if err != nil {
			return nil, err
		}

		if data != nil {
			changed[m.name] = data
		}
	}

	return changed, nil
}

// authorityState is the content of an authority's Secret. An authority is replaced in two steps,
// because everyone must trust the next one before it signs: it is published as next, and after the
// handover it takes the place of current.
type authorityState struct {
	current    *pair  // signs
	next       *pair  // only trusted; nil if none is published
	old        []byte // certificate of the previous authority, in PEM, also trusted; nil if there is none
	hasChanged bool   // the Secret must be written
}

// renewAuthority returns the new state of an authority, given the data of its Secret.
func renewAuthority(
	now time.Time,
	handover time.Duration,
	name string,
	data map[string][]byte,
) (authorityState, error) {
	if len(data) == 0 {
		first, err := issueAuthority(now)
		return authorityState{current: first, hasChanged: true}, err
	}

	current, err := parsePair(data["ca.crt"], data["ca.key"])
	if err != nil {
		return authorityState{}, fmt.Errorf("read Secret %s: %w (delete it, and every member and node gets new certificates)",
			name, err)
	}

	state := authorityState{current: current, old: data["old.crt"]}

	if len(data["next.crt"]) > 0 {
		if state.next, err = parsePair(data["next.crt"], data["next.key"]); err != nil {
			return authorityState{}, fmt.Errorf("read Secret %s: %w", name, err)
		}
	}

	isRequested := len(data[rotateKey]) > 0
	isOld := current.cert.NotAfter.Sub(now) < authorityLife/3

	switch {
	case state.next == nil && (isOld || isRequested):
		if state.next, err = issueAuthority(now); err != nil {
			return authorityState{}, err
		}

		state.hasChanged = true
	case state.next != nil && now.Sub(state.next.publication()) >= handover:
		state = authorityState{current: state.next, old: current.certPEM(), hasChanged: true}
	}

	return state, nil
}

// publication returns the time at which an authority's certificate was made.
func (p *pair) publication() time.Time { return p.cert.NotBefore.Add(clockSkew) }

// trusted returns the certificates to trust, in PEM.
func (s authorityState) trusted() []byte {
	out := s.current.certPEM()
	if s.next != nil {
		out = append(out, s.next.certPEM()...)
	}

	return append(out, s.old...)
}

// data returns the content of the Secret. It does not have rotateKey: one replacement was
// requested.
func (s authorityState) data() (map[string][]byte, error) {
	key, err := s.current.keyPEM()
	if err != nil {
		return nil, err
	}

	out := map[string][]byte{"ca.crt": s.current.certPEM(), "ca.key": key}
	if s.next != nil {
		if out["next.key"], err = s.next.keyPEM(); err != nil {
			return nil, err
		}

		out["next.crt"] = s.next.certPEM()
	}

	if len(s.old) > 0 {
		out["old.crt"] = s.old
	}

	return out, nil
}

// renew returns the new data of the Secret, or nil if the existing data are right.
func (m memberSecret) renew(
	now time.Time,
	existing map[string][]byte,
	authorities map[string]authorityState,
) (map[string][]byte, error) {
	ca, files := authorities[centralSecret].current, m.files[0] // all files have the same certificate

	p, err := parsePair(existing[files.cert], existing[files.key])
	if err != nil || !p.isValid(ca, now) {
		if p, err = issueMember(m.commonName, ca, now); err != nil {
			return nil, err
		}
	}

	key, err := p.keyPEM()
	if err != nil {
		return nil, err
	}

	data := map[string][]byte{}
	for _, f := range m.files {
		data[f.key] = key
		data[f.cert] = p.certPEM()
		data[f.ca] = authorities[f.trusted].trusted()
	}

	if maps.EqualFunc(existing, data, bytes.Equal) {
		return nil, nil
	}

	return data, nil
}

// isValid reports whether the authority has signed the certificate, and a third of its life is
// left.
func (p *pair) isValid(ca *pair, now time.Time) bool {
	return p.cert.CheckSignatureFrom(ca.cert) == nil &&
		p.cert.NotAfter.Sub(now) >= memberLife/3 && !now.Before(p.cert.NotBefore)
}
