//go:build race

package programs

import (
	_ "embed"
	"strings"
)

// flags is what scripts/test passes to `go test` as well.
//
//go:embed race.flags
var flags string

func init() { raceFlags = strings.Fields(flags) }
