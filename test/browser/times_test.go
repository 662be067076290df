package browser_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A shownTime is a time on a page.
type shownTime struct{ Datetime, Title, Text, Local string }

const shownTimes = `[...document.querySelectorAll("time[data-local]")].map(e => ({Datetime: e.dateTime, Title: e.title, Text: e.textContent, Local: e.dataset.local}))`

// The reader is in India, half an hour off the hours of UTC.
func TestTimesAreInTheZoneOfTheReaderAlsoWhereTheViewIsReplaced(t *testing.T) {
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"servers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"))+"\n")
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	rig.Call(t, w.Open(t, "/mcp", true), "work", "{}")
	var opened struct{ URL string }
	if err := json.Unmarshal([]byte(w.Do(0, "", "page", "--json")), &opened); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	saw := watch(b)
	if _, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"}); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(opened.URL))
	b.await("You are local, an operator")
	layouts := map[string]string{"hour": "15:04", "second": time.DateTime}
	check := func(when string) (asOf string) {
		t.Helper()
		seen := map[string]bool{}
		for _, s := range evaluate[[]shownTime](b, shownTimes) {
			exact, err := time.Parse(time.RFC3339, s.Datetime)
			if want := exact.Add(5*time.Hour + 30*time.Minute).Format(layouts[s.Local]); err != nil || s.Text != want || s.Title != exact.Format(time.DateTime)+" UTC" {
				t.Errorf("%s: %+v, want %s: %v", when, s, want, err)
			}
			seen[s.Local] = true
			asOf = s.Datetime // the last one
		}
		if !seen["hour"] || !seen["second"] {
			t.Errorf("%s, these times are shown: %v", when, seen)
		}
		if zones := evaluate[string](b, `[...new Set([...document.querySelectorAll("[data-zone]")].map(e => e.textContent))].join()`); zones != "Asia/Calcutta" && zones != "Asia/Kolkata" {
			t.Errorf("%s, the zones are %s", when, zones)
		}
		return asOf
	}
	first := check("at first")
	wait.Until(t, "the next second, since times are shown in seconds", func() bool { return time.Now().UTC().Truncate(time.Second).Format(time.RFC3339) > first })
	w.Do(0, "", "server", "disable", "a", "--reason", "a test")
	b.await("a is disabled by an operator")
	if check("after a change") == first {
		t.Error("the time of the view was not replaced")
	}

	// A view that is not live, and one without scripts.
	b.do(chromedp.Navigate(w.at + "/decision"))
	b.await("Times of day are in Asia/")
	_, text := w.get(t, b.sessionCookie(), "/now")
	if !strings.Contains(text, `Times of day are in <span data-zone>UTC</span>.`) || !strings.Contains(text, `</time> <span data-zone>UTC</span>`) {
		t.Errorf("without scripts, times are\n%s", text)
	}
	if faults, _ := saw.seen(); len(faults) > 0 {
		t.Errorf("the browser reports %q", faults)
	}
}
