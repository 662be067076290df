//go:build !linux

package wall

import "runtime"

// Prepare does nothing on this system.
func (o *Order) Prepare() (dir string, err error) { return "", nil }

// Raise says which walls are missing: all of them.
func (o *Order) Raise() (e InEffect, err error) {
	return o.Absent("there are no walls on " + runtime.GOOS)
}
