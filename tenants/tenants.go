// Package tenants embeds the example tenant of "switchboard demo", a start for your
// own tenants.
package tenants

import "embed"

// Example is the folder tenants/example.
//
//go:embed example
var Example embed.FS
