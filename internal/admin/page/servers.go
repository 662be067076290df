package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/shown"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// serverAt returns the address of a path of the API about the tenant of the view.
func serverAt(path string) func(*viewQuery) string {
	return func(q *viewQuery) string { return linkTo(q.fill(path), nil, "tenant", q.state.Get("tenant")) }
}

// serverForms are what operators do with a server.
func serverForms() map[string]viewForm {
	forms := map[string]viewForm{}
	for _, what := range admin.Operations() {
		forms[what] = func(q *viewQuery, fields url.Values) (formDone, error) {
			body := map[string]string{}
			if reason := strings.TrimSpace(fields.Get("reason")); reason != "" {
				body["reason"] = reason
			}
			done := &admin.OperationResult{}
			err := q.send(http.MethodPost, q.fill("/v1/servers/{server}/"+what), body, done)
			return formDone{Result: done}, err
		}
	}
	return forms
}

// A serversPage is the data of the view of all servers.
type serversPage struct {
	At      time.Time
	Servers []listedServer
	Next    string
	callNotes
}

// A listedServer is a server, and its calls of the last hour.
type listedServer struct {
	admin.ServerStatus
	Hour history.Tally
}

// callNotes say what is missing in the numbers of calls.
type callNotes struct{ Incomplete, StoreAway bool }

// loadServers adds the calls of the last hour to the list of servers.
func loadServers(q *viewQuery, answer []byte) (any, error) {
	var page struct {
		Servers []admin.ServerStatus
		Next    string
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return nil, err
	}
	l := &serversPage{At: time.Now(), Next: page.Next}
	calls := map[switchboard.ServerID]*history.Tally{}
	notes, err := q.eachSeries("", "1m", l.At.Add(-time.Hour), true, func(s *history.TimeSeries) {
		if calls[s.Server] == nil {
			calls[s.Server] = &history.Tally{}
		}
		for i := range s.Points {
			calls[s.Server].Add(&s.Points[i].Tally)
		}
	})
	if err != nil {
		return nil, err
	}
	l.callNotes = notes
	for i := range page.Servers {
		one := listedServer{ServerStatus: page.Servers[i]}
		if t := calls[one.ID]; t != nil {
			one.Hour = *t
		}
		l.Servers = append(l.Servers, one)
	}
	return l, nil
}

// maxExcerpts limits how many parts of the history a view reads.
const maxExcerpts = 16

// eachSeries calls see with the calls since an instant, of one server or of all: by step or, with total, in one point.
func (q *viewQuery) eachSeries(server switchboard.ServerID, step string, since time.Time, total bool, see func(*history.TimeSeries)) (n callNotes, err error) {
	after := ""
	for range maxExcerpts {
		var part history.Excerpt
		address := linkTo("/v1/metrics/history", nil, "tenant", q.state.Get("tenant"), "server", string(server), "step", step, "from", since.UTC().Format(time.RFC3339), "total", map[bool]string{true: "true"}[total], "after", after)
		if err := q.get(address, &part); err != nil {
			return n, err
		}
		n.Incomplete, n.StoreAway = n.Incomplete || part.Incomplete, n.StoreAway || part.StoreAway
		for i := range part.Series {
			see(&part.Series[i])
		}
		if after = part.Next; after == "" {
			return n, nil
		}
	}
	n.Incomplete = true
	return n, nil
}

// A serverPage is the data of the view of one server.
type serverPage struct {
	admin.ServerReport
	At     time.Time
	Hour   history.Tally
	Day    history.Tally
	Hours  *latencyChart // nil without calls
	Band   *stateBand
	Recent []health.PastChange // the newest first
	Offer  *admin.OfferList    // nil if the officer may not read it
	callNotes
}

// maxRecent limits the changes of states that the view shows.
const maxRecent = 50

// loadServer adds the calls of the last day and the tools to a server.
func loadServer(q *viewQuery, answer []byte) (any, error) {
	x := &serverPage{At: time.Now()}
	if err := json.Unmarshal(answer, &x.ServerReport); err != nil {
		return nil, err
	}
	hours := make([]history.Point, 24)
	first := x.At.UTC().Truncate(time.Hour).Add(-23 * time.Hour)
	for i := range hours {
		hours[i].Start = first.Add(time.Duration(i) * time.Hour)
	}
	notes, err := q.eachSeries(x.ID, "15m", first, false, func(s *history.TimeSeries) {
		for i := range s.Points {
			p := &s.Points[i]
			x.Day.Add(&p.Tally)
			if at := int(p.Start.Sub(first) / time.Hour); at >= 0 && at < len(hours) {
				hours[at].Add(&p.Tally)
			}
		}
	})
	if err == nil {
		_, err = q.eachSeries(x.ID, "1m", x.At.Add(-time.Hour), true, func(s *history.TimeSeries) {
			for i := range s.Points {
				x.Hour.Add(&s.Points[i].Tally)
			}
		})
	}
	if err != nil {
		return nil, err
	}
	x.callNotes, x.Hours = notes, latencyBars(hours)
	x.Band = newStateBand(&x.ServerReport, x.At)
	for _, c := range slices.Backward(x.Changes) {
		if x.Recent = append(x.Recent, c); len(x.Recent) == maxRecent {
			break
		}
	}
	if q.officer.Operator {
		x.Offer = &admin.OfferList{}
		if err := q.get(linkTo("/v1/tools", nil, "server", string(x.ID), "after", q.state.Get("after")), x.Offer); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// definitionText returns the definition of a tool as lines, with every character visible.
func definitionText(definition json.RawMessage) string {
	a, err := shown.WriteArguments(definition)
	if err != nil {
		return "It cannot be shown: " + shown.Line(err.Error())
	}
	return a.Text
}

// stateWords says what a state of a server means, after its name.
func stateWords(state any) string {
	switch text := fmt.Sprint(state); health.State(text) {
	case health.Healthy:
		return "is healthy"
	case health.NeedsConnection:
		return "needs a person who signs in at its provider"
	case health.Quarantine:
		return "is in quarantine: no calls are sent to it"
	case health.Probation:
		return "is on probation: it gets one call at a time"
	case health.Disabled:
		return "is disabled by an operator"
	case health.Lost:
		return "has ended, or refuses connections"
	case health.Starting:
		return "has not answered yet"
	case "retrying": // the state of a connection, which is told where no other is known
		return "has failed, and is tried again"
	default:
		return "is not healthy: " + shown.Line(strings.ReplaceAll(text, "_", " "))
	}
}

// stateClass names the kind of a state, as the style does.
func stateClass(state health.State) string {
	switch state {
	case health.Healthy:
		return "well"
	case health.Starting, health.Disabled, health.Probation, health.NeedsConnection:
		return "between"
	}
	return "ill"
}

// The form of the band of states: a unit is a minute.
const (
	bandWidth  = 24 * 60
	bandHeight = 24
)

// A stateBand shows the states of a server in the last 24 hours. A state is told apart by the height of its part, too.
type stateBand struct {
	Width, Height int
	Parts         []statePart // without the times in which no process has watched
	Known         time.Time   // the first known state; zero: there is none
	Well          string      // how much of the known time the server was healthy
}

// A statePart is a part of the band, in which the server had one state.
type statePart struct {
	X, Width, Y, Height int
	State               health.State
	From, To            time.Time
}

// newStateBand lays the band out.
func newStateBand(x *admin.ServerReport, now time.Time) *stateBand {
	b := &stateBand{Width: bandWidth, Height: bandHeight}
	begin := now.Add(-bandWidth * time.Minute)
	var well, known time.Duration
	for _, was := range x.Band {
		from := was.From
		if from.Before(begin) {
			from = begin
		}
		d := was.To.Sub(from)
		if d <= 0 {
			continue
		}
		if b.Known.IsZero() {
			b.Known = from
		}
		known += d
		if was.State == health.Healthy {
			well += d
		}
		p := statePart{X: int(from.Sub(begin) / time.Minute), State: was.State, From: from, To: was.To, Height: bandHeight}
		p.X = min(max(p.X, 0), bandWidth-2)
		p.Width = min(max(int(d/time.Minute), 2), bandWidth-p.X) // also what was short is visible
		switch stateClass(was.State) {
		case "well":
			p.Height = bandHeight / 3
		case "between":
			p.Height = bandHeight * 2 / 3
		}
		p.Y = bandHeight - p.Height
		b.Parts = append(b.Parts, p)
	}
	b.Well = share(int64(well), int64(known))
	return b
}

// A latencyChart is the plot of latencies by hour.
type latencyChart struct {
	Width, Height int
	Most          float64 // the highest P95, in milliseconds
	Bars          []latencyBar
}

// A latencyBar is the bar of one hour up to P95. Its lower part goes up to P50.
type latencyBar struct {
	history.Point
	X, Width      int
	Y95, Height95 int
	Y50, Height50 int
}

// latencyBars lays the plot out; nil if no call has a latency.
func latencyBars(hours []history.Point) *latencyChart {
	c := &latencyChart{Width: barStep * len(hours), Height: barHeight}
	for i := range hours {
		c.Most = max(c.Most, hours[i].P95)
	}
	if c.Most == 0 {
		return nil
	}
	high := func(ms float64) int {
		if ms == 0 {
			return 0
		}
		return max(1, int(ms/c.Most*barHeight))
	}
	for i, p := range hours {
		b := latencyBar{Point: p, X: barStep * i, Width: barWidth, Height95: high(p.P95), Height50: high(p.P50)}
		b.Y95, b.Y50 = barHeight-b.Height95, barHeight-b.Height50
		c.Bars = append(c.Bars, b)
	}
	return c
}
