package early

import (
	"runtime/debug"
	"testing"
)

func TestTheTargetIsHighUntilTheEndAndThenThatOfTheEnvironment(t *testing.T) {
	high := percent
	if before < 0 || before > percent {
		high = before
	}
	if got := debug.SetGCPercent(high); got != high {
		t.Errorf("the target is %d before the end, want %d", got, high)
	}
	End()
	if got := debug.SetGCPercent(before); got != before {
		t.Errorf("the target is %d after the end, want %d", got, before)
	}
}
