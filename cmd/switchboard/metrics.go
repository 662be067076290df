package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type metricsCmd struct {
	serverFlags
	Tenant  switchboard.TenantID `help:"Only the metrics of this tenant." placeholder:"ID"`
	History bool                 `help:"Print the calls of the last hour, day or 14 days in place of the present metrics."`
	Step    string               `help:"With --history, the length of a step: 10s for the last hour, 1m for the last day (the default), 15m for the last 14 days." placeholder:"LENGTH"`
	Server  switchboard.ServerID `help:"With --history, only the calls for this server." placeholder:"ID"`
	Since   pastTime             `help:"With --history, only the steps since TIME: a time before now, such as 3d or 12h, or an instant." placeholder:"TIME"`
	Until   pastTime             `help:"With --history, only the steps before TIME." placeholder:"TIME"`
}

// Run prints the metrics of a running Switchboard, as Prometheus reads them, or their history.
func (m *metricsCmd) Run(ctx context.Context, io streams) error {
	if m.History {
		return m.printHistory(ctx, io)
	}
	if m.JSON || m.Step != "" || m.Server != "" || !time.Time(m.Since).IsZero() || !time.Time(m.Until).IsZero() {
		return usageError{errors.New("--step, --server, --since, --until and --json are for --history")}
	}
	path := "/metrics"
	if m.Tenant != "" {
		path += "?tenant=" + url.QueryEscape(string(m.Tenant))
	}
	answer, err := m.asTarget().askAdmin(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(io.raw, "%s", answer.body)
	return err
}

func (m *metricsCmd) printHistory(ctx context.Context, io streams) error {
	q := url.Values{}
	for name, value := range map[string]string{"tenant": string(m.Tenant), "server": string(m.Server), "step": m.Step} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, at := range map[string]pastTime{"from": m.Since, "to": m.Until} {
		if t := time.Time(at); !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	var past history.Excerpt
	for {
		var part history.Excerpt
		if err := m.asTarget().fetchInto(ctx, "/v1/metrics/history?"+q.Encode(), &part); err != nil {
			return err
		}
		all := append(past.Series, part.Series...)
		past = part
		past.Series = all
		if past.Next == "" {
			break
		}
		if past.Next == q.Get("after") {
			return errors.New("the server returned the same next part of the history twice")
		}
		q.Set("after", past.Next)
		q.Set("from", past.From.Format(time.RFC3339Nano)) // so that all parts are about the same steps
		q.Set("to", past.To.Format(time.RFC3339Nano))
	}
	if m.JSON {
		return json.NewEncoder(io.raw).Encode(past)
	}
	past.From, past.To = past.From.Local(), past.To.Local()
	writeHistory(io, &past)
	return nil
}

// writeHistory prints one row for each tenant and server: the sums of the whole time, and a sparkline.
func writeHistory(io streams, past *history.Excerpt) {
	fmt.Fprintf(io.out, "%s to %s, in steps of %s\n", past.From.Format(time.DateTime), past.To.Format(time.DateTime), past.Step)
	if past.StoreAway {
		fmt.Fprintln(io.out, "The store cannot be read now, so the newest calls at other replicas are missing.")
	}
	if len(past.Series) == 0 {
		fmt.Fprintln(io.out, "There were no calls.")
		return
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TENANT\tSERVER\tCALLS\tFAILED\tREFUSED\tMOVED\tP50\tP95\tCALLS OVER TIME")
	for _, s := range past.Series {
		var sum history.Tally
		parts := make([]int64, sparkWidth)
		for _, p := range s.Points {
			sum.Add(&p.Tally)
			part := int(float64(sparkWidth) * float64(p.Start.Sub(past.From)) / float64(past.To.Sub(past.From)))
			parts[min(max(part, 0), sparkWidth-1)] += p.Calls
		}
		if sum.Calls == 0 {
			continue // it is about lists, or about what calls of another server have cost
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", cmp.Or(string(s.Tenant), "(others)"), cmp.Or(string(s.Server), "(others)"), sum.Calls, sum.Failed, sum.Refused, sum.Moved,
			spellLatency(sum.P50), spellLatency(sum.P95), sparkline(parts))
	}
	_ = w.Flush() // without the terminal the table is not needed
	if past.Incomplete {
		fmt.Fprintln(io.out, "A step keeps the 63 busiest pairs of tenant and server apart; calls of further pairs are missing in their rows.")
	}
}

// sparkWidth is the number of characters in a sparkline.
const sparkWidth = 24

// sparkline draws the numbers, which share their largest one as scale. Every number that is not 0 is visible.
func sparkline(numbers []int64) string {
	const bars = "▁▂▃▄▅▆▇█"
	levels, most := []rune(bars), int64(1)
	for _, n := range numbers {
		most = max(most, n)
	}
	var b strings.Builder
	for _, n := range numbers {
		if n == 0 {
			b.WriteByte('.')
			continue
		}
		b.WriteRune(levels[int(float64(n)/float64(most)*float64(len(levels)-1))])
	}
	return b.String()
}

// spellLatency spells milliseconds with two digits; "-" for 0, since no call has a latency then.
func spellLatency(ms float64) string {
	if ms == 0 {
		return "-"
	}
	d := time.Duration(ms * float64(time.Millisecond))
	unit := time.Microsecond
	for unit*100 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}
