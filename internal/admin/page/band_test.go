package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/health"
)

func TestAServersBandHasTheStatesOfTheLastDayAndGapsWhereNoProcessHasWatched(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	at := func(hours int) time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
	b := newStateBand(&admin.ServerReport{Band: []health.BandPart{
		{From: at(-100), To: at(-30), State: health.Lost}, {From: at(-30), To: at(-12), State: health.Healthy}, {From: at(-12), To: at(-11), State: health.Disabled}, {From: at(-6), To: at(0), State: health.Quarantine},
	}}, noon)
	got := ""
	for _, p := range b.Parts {
		got += fmt.Sprintf("%s %d+%d %d/%d; ", p.State, p.X, p.Width, p.Y, p.Height)
	}
	if want := "healthy 0+720 16/8; disabled 720+60 8/16; quarantine 1080+360 0/24; "; got != want || b.Well != "63.2 %" || !b.Known.Equal(at(-24)) {
		t.Errorf("the band is %s, healthy for %s since %s", got, b.Well, b.Known)
	}
}
