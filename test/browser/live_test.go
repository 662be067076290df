package browser_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// An observed is a view whose announcements are kept.
const observed = `
	first = document.querySelector("main h1"); announced = [];
	new MutationObserver(() => announced.push(document.getElementById("said").innerText)).observe(document.getElementById("said"), {childList: true})`

// A view in a real browser changes in place, and not under somebody's hands.
// PG-08: when Switchboard is killed, the view says how old it is; when Switchboard is back, the view goes on, and shows nothing twice.
func TestPG08AnOpenViewFollowsWhatChangesAndSaysWhenItCannot(t *testing.T) {
	findChromium(t)
	at, listen, lead := placeAdmin(t, false)
	w := &world{at: at}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"servers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"))+"\n  "+rig.FakeRow("b", fmt.Sprintf(rig.Tool, "rest"))+"\n")
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	var opened struct{ URL string }
	if err := json.Unmarshal([]byte(w.Do(0, "", "page", "--json")), &opened); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t)
	saw := watch(b)
	b.do(chromedp.EmulateViewport(800, 300), chromedp.Navigate(opened.URL))
	b.await("no server has failed")
	run := func(script string) {
		t.Helper()
		evaluate[bool](b, script+"\n;true")
	}
	check := func(when string, claims ...string) {
		t.Helper()
		for _, claim := range claims {
			if !evaluate[bool](b, claim) {
				t.Errorf("%s, this is not so: %s; the page is\n%s", when, claim, evaluate[string](b, `document.body.outerHTML`))
			}
		}
	}
	point := func(selector string) {
		t.Helper()
		at := evaluate[[]float64](b, fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView({block: "center"}); const r = e.getBoundingClientRect(); return [r.left + 3, r.top + 3] })()`, selector))
		b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
	}
	run(observed)
	point("#calls")
	run(`before = document.querySelector("#calls").getBoundingClientRect().top`)

	w.Do(0, "", "server", "disable", "a", "--reason", "a test")
	b.await("a is disabled by an operator")
	check("after a change", `document.querySelector("main h1") === first`, // what has not changed is what it was
		`[...document.querySelectorAll("[data-changed]")].map(e => e.tagName).join() === "OL"`,
		`announced.join() === "Changed: What needs a person"`,
		`Math.abs(document.querySelector("#calls").getBoundingClientRect().top - before) < 1`, // it is under the pointer
	)

	// The part stands still while its form is filled in, and the page says so.
	run(`document.querySelector("main section").insertAdjacentHTML("beforeend", "<form><input id=typed><a href=/now id=away>A link</a></form>")`)
	b.do(chromedp.SendKeys(chromedp.CSS("#typed"), "words"))
	run(`document.activeElement.blur()`)
	w.Do(0, "", "server", "disable", "b", "--reason", "a test")
	b.await("There is newer content")
	check("while a form is filled in", `document.getElementById("typed").value === "words"`, `document.querySelectorAll(".concern").length === 1`)
	// Nor does it change under a pointer that is on a link.
	point("#away")
	run(`document.getElementById("typed").value = ""`)
	w.Do(0, "", "server", "enable", "a")
	check("while the pointer is on a link", `document.getElementById("away") !== null`, `document.querySelectorAll(".concern").length === 1`)
	point("h1")
	b.await("b is disabled by an operator")
	rig.Eventually(t, "the content is that of Switchboard", func() string {
		return rig.ReasonUnless(evaluate[bool](b, `document.querySelectorAll(".concern").length === 1 && document.getElementById("behind").hidden`), b.text())
	})
	if faults, origins := saw.seen(); len(faults) > 0 || len(origins) != 1 || origins[0] != w.at {
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}

	_ = w.Cmd.Process.Kill()
	_ = w.Cmd.Wait()
	b.await("There is no connection to Switchboard. The page goes on by itself when it is back. What you see is from ")
	check("without Switchboard", `/, \d+ (s|min) ago/.test(document.getElementById("behind").innerText)`, `document.querySelectorAll(".concern").length === 1`)
	again := &world{Gateway: rig.Serve(t, w.dir), at: w.at}
	rig.Eventually(t, "the page is connected again", func() string {
		return rig.ReasonUnless(evaluate[bool](b, `document.getElementById("behind").hidden`), b.text())
	})
	again.Do(0, "", "server", "disable", "a", "--reason", "a test")
	b.await("a is disabled by an operator")
	check("when Switchboard is back", `document.querySelectorAll(".concern").length === 2`, `document.querySelectorAll("main").length === 1`, `document.querySelectorAll("main section").length === 2`,
		`announced.includes("Connected again.")`, `document.querySelector("main h1") === first`)

	// The session ends.
	var all []struct{ ID string }
	if err := json.Unmarshal([]byte(again.Do(0, "", "sessions", "list", "--json")), &all); err != nil || len(all) != 1 {
		t.Fatalf("the sessions are %v, %v", all, err)
	}
	again.Do(0, "has ended", "sessions", "end", all[0].ID)
	b.await("Switchboard does not show you this any more")
	for _, fault := range saw.faults {
		if len(fault) > 8 && fault[:8] == "security" {
			t.Error(fault)
		}
	}
}
