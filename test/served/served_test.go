// Package served_test proves Switchboard on the served path: the real binary, a real client on a real transport in front, real server processes
// behind. Package rig has the words in which the tests are written.
package served_test

import (
	"os"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }
