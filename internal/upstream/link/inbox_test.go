package link

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestFloodsAreCutInTheirWindowOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f floodMeter
		for range 10 * MaxJunk {
			if too := f.add(1, 10, 0); too != "" {
				t.Fatal(too)
			}
			time.Sleep(2 * floodWindow / MaxJunk)
		}
		n := 0
		for f.add(0, 0, 1) == "" {
			n++
		}
		if n != maxChatter {
			t.Errorf("cut after %d", n)
		}
	})
}
