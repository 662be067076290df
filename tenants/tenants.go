// Package tenants carries the example tenant that "switchboard demo" runs, and
// that a tenant of your own can start from.
package tenants

import "embed"

// Example is the folder tenants/example.
//
//go:embed example
var Example embed.FS
