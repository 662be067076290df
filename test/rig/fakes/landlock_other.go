//go:build !linux

package main

import "errors"

// runWithoutLandlock fails: only Linux has Landlock.
func runWithoutLandlock([]string) error { return errors.ErrUnsupported }
