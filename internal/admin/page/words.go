package page

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/shown"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
)

// functions are what templates use besides their data.
var functions = template.FuncMap{
	"theirs": theirs, "spelt": spelt, "ago": ago, "instant": instant, "until": until, "count": count, "int64": func(n int) int64 { return int64(n) }, "share": share, "latency": latency, "bars": hourBars, "moment": moment, "hour": hour, "zone": zone,
	"link":       linkFrom,
	"asset":      addressOf,
	"icon":       drawIcon,
	"lasts":      func(now, t time.Time) template.HTML { return instant(t, spellTime(now.Sub(t))) },
	"lines":      func(text string) []string { return strings.SplitN(text, "\n", maxLines) },
	"difference": splitDifference, "rest": countRest, "further": func(list any, first, more int) int64 { return countRest(list, first) + int64(more) }, "places": placeTools, "now": time.Now, "place": placeInFolder, "notLast": func(i, n int) bool { return i+1 < n },
	"caller": func(id string) string {
		if id == switchboard.LocalID { // which is no key
			return ""
		}
		return id
	},
	"path":       func(id any) string { return url.PathEscape(fmt.Sprint(id)) },
	"definition": definitionText, "visible": visibleText,
	"plain":        func(text string) string { return shown.Line(text) },
	"several":      several,
	"thousandths":  verify.Thousandths,
	"leaveWords":   leaveWords,
	"outcomeClass": outcomeClass, "verdictClass": verdictClass,
	"typedText": typedText, "typedTag": typedTag, "valueText": valueText, "codeLines": codeLines,
	"stateWords": stateWords, "stateClass": stateClass,
	"pinWords": pinWords, "pinClass": pinClass, "classWords": classWords, "addressOfPin": addressOfPin, "toolPin": addressOfToolPin,
	"words": func(state string) string { return shown.Line(strings.ReplaceAll(state, "_", " ")) },
}

// linkFrom returns an address on the page that keeps the tenant of the scene. pairs are the names and values of its query.
func linkFrom(s scene, path string, pairs ...string) string { //nolint:gocritic // templates have scenes as values
	return linkTo(path, url.Values{}, append([]string{"tenant", string(s.Tenant)}, pairs...)...)
}

// maxTheirs limits the text of others that is shown, in bytes.
const maxTheirs = 1000

// maxLines limits the lines of one text of others that are shown as lines.
const maxLines = 20

// theirs marks a text of a server, an agent, a file or the system as not ours. Every character that is not visible as itself is spelt out, and no part of it is markup.
func theirs(v any) template.HTML { return frame(fmt.Sprint(v), shown.Line) }

// spelt is theirs for a text in which the API has spelt out what is not visible. Its backslashes stay.
func spelt(v any) template.HTML { return frame(fmt.Sprint(v), shown.LineOfJSON) }

// frame frames a text as not ours, as spell shows it.
func frame(text string, spell func(string) string) template.HTML {
	rest := 0
	if len(text) > maxTheirs {
		end := maxTheirs
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text, rest = text[:end], utf8.RuneCountInString(text[end:])
	}
	html := `<bdi class="theirs">` + template.HTMLEscapeString(spell(text)) + `</bdi>`
	if rest > 0 {
		html += fmt.Sprintf(` <span class="note">and %s more characters</span>`, count(int64(rest)))
	}
	return template.HTML(html) //nolint:gosec // the text is escaped just above
}

// placeInFolder shortens a place in a file, such as /etc/switchboard/tenants/acme/tenant.yaml:3:5, to the part in the folder of the configuration.
func placeInFolder(place any) string {
	text := fmt.Sprint(place)
	for _, folder := range []string{"tenants", "capabilities", "overlays", "policies"} {
		if i := strings.LastIndex(text, "/"+folder+"/"); i >= 0 {
			return text[i+1:]
		}
	}
	return text[strings.LastIndex(text, "/")+1:]
}

// drawIcon draws an icon of assets/icons.svg: well, between, ill or refused. Words beside it say the same.
func drawIcon(name string) template.HTML {
	return template.HTML(`<svg class="icon ` + name + `" aria-hidden="true"><use href="` + addressOf("icons.svg") + `#` + name + `"></use></svg>`) //nolint:gosec // names of ours
}

// ago says how long before now an instant was.
func ago(now, t time.Time) template.HTML {
	if now.Sub(t) < time.Second {
		return instant(t, "just now")
	}
	return instant(t, spellTime(now.Sub(t))+" ago")
}

// until says how long after now an instant is.
func until(now, t time.Time) template.HTML {
	if !t.After(now) {
		return instant(t, "now")
	}
	return instant(t, "in "+spellTime(t.Sub(now)))
}

// instant writes an instant with the words for it. Whoever points at them sees the exact time.
func instant(t time.Time, words string) template.HTML {
	return timeElement(t, "", words)
}

// timeElement writes an instant. assets/times.js writes the text again in the zone of the browser: local says how, "" not at all.
func timeElement(t time.Time, local, text string) template.HTML {
	if t = t.UTC(); local != "" {
		local = ` data-local="` + local + `"`
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC"%s>%s</time>`, t.Format(time.RFC3339), t.Format(time.DateTime), local, text)) //nolint:gosec // numbers, and words of ours
}

// moment writes an instant as date and time of day. The template names the zone.
func moment(t time.Time) template.HTML {
	return timeElement(t, "second", t.UTC().Format(time.DateTime))
}

// hour writes an instant as time of day. The template names the zone.
func hour(t time.Time) template.HTML { return timeElement(t, "hour", t.UTC().Format("15:04")) }

// zone names the zone of moment and hour: UTC. In its place, assets/times.js puts the zone of the browser.
func zone() template.HTML { return `<span data-zone>UTC</span>` }

// spellTime spells a time in its largest unit, rounded down.
func spellTime(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " h"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + " d"
}

// count spells a number with a comma for each thousand.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// several spells a number of things, whose name gets an s unless there is one.
func several(n any, name string) string {
	if text := fmt.Sprint(n); text == "1" {
		return "1 " + name
	} else if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		return count(v) + " " + name + "s"
	}
	return name + "s"
}

// share spells a part of a number in percent; "" for none.
func share(part, of int64) string {
	if part == 0 || of == 0 {
		return ""
	}
	percent := 100 * float64(part) / float64(of)
	if percent > 0 && percent < 0.1 {
		return "< 0.1 %"
	}
	return strconv.FormatFloat(percent, 'f', 1, 64) + " %"
}

// latency spells milliseconds with two digits; – for none.
func latency(ms float64) string {
	switch {
	case ms == 0:
		return "–"
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms < 10_000:
		return strconv.FormatFloat(ms/1000, 'f', 1, 64) + " s"
	}
	return strconv.FormatFloat(ms/1000, 'f', 0, 64) + " s"
}

// The form of the plot of calls, in units of its own.
const (
	barStep   = 10 // from one bar to the next
	barWidth  = 8
	barHeight = 80 // of the hour with most calls
)

// A barChart is the plot of calls by hour.
type barChart struct {
	Width, Height int
	Most          int64     // calls in one hour
	MostAt        time.Time // in which
	Bars          []hourBar
}

// An hourBar is the bar of one hour. Its lower part are the calls without a result.
type hourBar struct {
	history.Point
	X, Width        int
	Y, Height       int
	BadY, BadHeight int
	NoResult        int64
}

// hourBars lays the plot out.
func hourBars(hours []history.Point) *barChart {
	c := &barChart{Width: barStep * len(hours), Height: barHeight}
	for i := range hours {
		if hours[i].Calls > c.Most {
			c.Most, c.MostAt = hours[i].Calls, hours[i].Start
		}
	}
	if c.Most == 0 {
		return nil
	}
	high := func(n int64) int {
		h := int(float64(n) / float64(c.Most) * barHeight)
		if n > 0 {
			h = max(h, 1) // every call is visible
		}
		return min(h, barHeight)
	}
	for i, p := range hours {
		b := hourBar{Point: p, X: barStep * i, Width: barWidth, NoResult: p.Failed + p.Refused}
		b.Height, b.BadHeight = high(p.Calls), high(b.NoResult)
		if b.NoResult < p.Calls {
			b.BadHeight = min(b.BadHeight, b.Height-1) // else it would look as if no call had a result
		}
		b.Y, b.BadY = barHeight-b.Height, barHeight-b.BadHeight
		c.Bars = append(c.Bars, b)
	}
	return c
}

// leaveWords says why a tool was exercised.
func leaveWords(l verify.Leave) string {
	switch l {
	case verify.LeaveWalls:
		return "of a second program, in walls without network"
	case verify.LeaveReadOnly:
		return "of the server in use, since it only reads"
	case verify.LeaveTest:
		return "of the server, which is a test environment"
	}
	return "since nothing gave leave to exercise it"
}
