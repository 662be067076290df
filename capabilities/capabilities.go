// Package capabilities embeds the standard capabilities: a start for an operator's own folder capabilities/. They name no
// atoms and have no boundaries, which are the operator's.
package capabilities

import "embed"

// Standard holds one file for each capability, and the lock of their published versions.
//
//go:embed *.yaml published.lock
var Standard embed.FS
