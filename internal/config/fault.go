package config

import "github.com/summit-switchboard/switchboard/internal/switchboard"

// A Fault is one mistake in one file.
type Fault = switchboard.Fault

// Faults are all mistakes, sorted by file, line and column. The functions of this package return it as
// their error.
type Faults = switchboard.Faults
