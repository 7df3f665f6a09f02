package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// part is a Go module or a Debian package in a release. purl is its package URL.
type part struct{ name, version, purl string }

// noAssertion is SPDX's value for what the document does not state.
const noAssertion = "NOASSERTION"

// bill writes the SPDX document: the Go modules that the programs are linked from, read from the
// programs themselves, and the Debian packages in the images.
func (r *release) bill(all []arch) error {
	parts, err := partsOf(all)
	if err != nil {
		return err
	}

	document := r.newDocument()
	addParts(document, parts)

	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}

	name := fmt.Sprintf("ovn-ebpf-%s.spdx.json", r.version)

	return os.WriteFile(filepath.Join(r.out, name), append(text, '\n'), 0o644)
}

// partsOf returns the parts of all architectures, sorted and without duplicates.
func partsOf(all []arch) ([]part, error) {
	var parts []part

	for _, a := range all {
		for _, program := range programs {
			info, err := buildinfo.ReadFile(filepath.Join(a.programs, program))
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", program, err)
			}

			parts = append(parts, part{"stdlib", info.GoVersion, "pkg:golang/stdlib@" + info.GoVersion})

			for _, m := range info.Deps {
				if m.Replace != nil {
					m = m.Replace
				}

				parts = append(parts, part{m.Path, m.Version, "pkg:golang/" + m.Path + "@" + m.Version})
			}
		}

		for _, p := range a.debian {
			purl := "pkg:deb/debian/" + p.Name + "@" + p.Version + "?arch=" + a.name
			parts = append(parts, part{p.Name, p.Version, purl})
		}
	}

	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.purl, b.purl) })

	return slices.Compact(parts), nil
}

// newDocument returns a document that describes the release, without parts.
func (r *release) newDocument() *v2_3.Document {
	return &v2_3.Document{
		SPDXVersion:       v2_3.Version,
		DataLicense:       v2_3.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      "ovn-ebpf-" + r.version,
		DocumentNamespace: "https://github.com/ovn-ebpf/ovn-ebpf/spdx/" + r.version + "-" + r.commit,
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "ovn-ebpf-release"}},
			Created:  r.date.Format("2006-01-02T15:04:05Z"),
		},
		Packages: []*v2_3.Package{{
			PackageName:             "ovn-ebpf",
			PackageSPDXIdentifier:   "ovn-ebpf",
			PackageVersion:          r.version,
			PackageDownloadLocation: "https://github.com/ovn-ebpf/ovn-ebpf",
			PackageLicenseConcluded: "Apache-2.0",
			PackageLicenseDeclared:  "Apache-2.0",
			PackageCopyrightText:    noAssertion,
		}},
		Relationships: []*v2_3.Relationship{{
			RefA:         common.MakeDocElementID("", "DOCUMENT"),
			RefB:         common.MakeDocElementID("", "ovn-ebpf"),
			Relationship: "DESCRIBES",
		}},
	}
}

// addParts adds each part as a package that the release contains.
func addParts(document *v2_3.Document, parts []part) {
	notInID := regexp.MustCompile(`[^a-zA-Z0-9.-]+`) // characters that an SPDX ID must not have

	for _, p := range parts {
		id := notInID.ReplaceAllString(p.purl, "-")
		document.Packages = append(document.Packages, &v2_3.Package{
			PackageName:             p.name,
			PackageSPDXIdentifier:   common.ElementID(id),
			PackageVersion:          p.version,
			PackageDownloadLocation: noAssertion,
			PackageLicenseConcluded: noAssertion,
			PackageLicenseDeclared:  noAssertion,
			PackageCopyrightText:    noAssertion,
			PackageExternalReferences: []*v2_3.PackageExternalReference{{
				Category: common.CategoryPackageManager,
				RefType:  common.TypePackageManagerPURL,
				Locator:  p.purl,
			}},
		})
		document.Relationships = append(document.Relationships, &v2_3.Relationship{
			RefA:         common.MakeDocElementID("", "ovn-ebpf"),
			RefB:         common.MakeDocElementID("", id),
			Relationship: common.TypeRelationshipContains,
		})
	}
}
