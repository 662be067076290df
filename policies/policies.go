// Package policies carries the Rego that Switchboard is shipped with: the
// operator's layer of every installation that has no folder policies/ of its
// own, and what such a folder can start from.
package policies

import "embed"

// Shipped are the files, the tests among them.
//
//go:embed *.rego
var Shipped embed.FS
