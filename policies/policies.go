// Package policies embeds the Rego files that Switchboard ships. They are the
// operator's layer of every installation without a folder policies/, and a start for
// such a folder. boundaries.rego is a layer of its own in every installation.
package policies

import "embed"

// Shipped are the files, including their tests.
//
//go:embed *.rego
var Shipped embed.FS

// Boundaries is the file boundaries.rego, the rules of the layer of boundaries.
//
//go:embed boundaries.rego
var Boundaries []byte

// IsBoundaries reports whether a file of Shipped belongs to the layer of boundaries.
func IsBoundaries(name string) bool {
	return name == "boundaries.rego" || name == "boundaries_test.rego"
}
