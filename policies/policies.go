// Package policies embeds the Rego files that Switchboard ships. They are the
// operator's layer of every installation without a folder policies/, and a start for
// such a folder.
package policies

import "embed"

// Shipped are the files, including their tests.
//
//go:embed *.rego
var Shipped embed.FS
