package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
)

// A figure is one thing that was measured of several contestants, once a round.
type figure struct {
	what, unit string
	values     map[string][]float64 // by contestant
	judged     []*judgement

	table, column string // where the values of each contestant are shown with their spread; "" where they are not
}

// A judgement computes one value from those of several contestants in each round. The median of all rounds is held to a limit, if there is one.
type judgement struct {
	as    string // a name for people
	of    func(at) float64
	limit limit
	bound float64
}

// A limit says whether a value must be at most its bound, or at least.
type limit string

const (
	noLimit limit = ""
	most    limit = "≤"
	least   limit = "≥"
)

// at is what a contestant reached in one round.
type at func(name string) float64

// ratio is how many times the second contestant's value the first one has.
func ratio(name, base string) func(at) float64 {
	return func(at at) float64 { return at(name) / at(base) }
}

// difference is how much more than the second contestant the first one has.
func difference(name, base string) func(at) float64 {
	return func(at at) float64 { return at(name) - at(base) }
}

func (b *bench) figure(what, unit string) *figure {
	f := &figure{what: what, unit: unit, values: map[string][]float64{}}
	b.figures = append(b.figures, f)
	return f
}

func (f *figure) see(name string, value float64) {
	f.values[name] = append(f.values[name], value)
}

// inTable shows each contestant's value with its spread, in a column of a table.
func (f *figure) inTable(table, column string) { f.table, f.column = table, column }

// compare shows of, which is called as, without a limit.
func (f *figure) compare(as string, of func(at) float64) {
	f.judged = append(f.judged, &judgement{as: as, of: of})
}

// judge has of, which is called as, be held to the limit that follows.
func (f *figure) judge(as string, of func(at) float64) *figure {
	f.compare(as, of)
	return f
}

// atMost sets the limit of the last judgement.
func (f *figure) atMost(bound float64) *figure {
	j := f.judged[len(f.judged)-1]
	j.limit, j.bound = most, bound
	return f
}

// atLeast sets the limit of the last judgement.
func (f *figure) atLeast(bound float64) *figure {
	j := f.judged[len(f.judged)-1]
	j.limit, j.bound = least, bound
	return f
}

// A verdict is the median of a judgement's values of all rounds, with the smallest and the largest, and whether the limit is met.
type verdict struct {
	value, least, most float64
	met                bool
}

// asks returns the contestants that the judgement compares.
func (j *judgement) asks() (names []string) {
	j.of(func(name string) float64 {
		names = append(names, name)
		return 1
	})
	return names
}

// verdict returns false if none of the contestants that j compares was measured.
func (f *figure) verdict(j *judgement) (v verdict, ok bool) {
	rounds := 0
	for _, name := range j.asks() {
		rounds = max(rounds, len(f.values[name]))
	}
	var all []float64
	for r := range rounds {
		all = append(all, j.of(func(name string) float64 {
			if r < len(f.values[name]) {
				return f.values[name][r]
			}
			return math.NaN()
		}))
	}
	v.value, v.least, v.most = median(all)
	switch j.limit {
	case most:
		v.met = v.value <= j.bound // not met where it is no number
	case least:
		v.met = v.value >= j.bound
	case noLimit:
		v.met = true
	}
	return v, rounds > 0
}

// unitOf is the unit of a judgement's value, behind a space.
func (f *figure) unitOf(j *judgement) string {
	if strings.Contains(j.as, "/") || f.unit == "" {
		return ""
	}
	return " " + f.unit
}

// report prints all tables, with the limits that are missed before them, and reports whether all limits are met.
func (b *bench) report(w io.Writer) (met bool) {
	fmt.Fprintf(w, "%s, %s/%s, %d processors; medians of %s.\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), plural(b.rounds, "round"))
	limits := [][]string{{"figure", "judged", "value", "least to most", "limit", "met"}}
	compared := [][]string{{"figure", "compared", "value", "least to most"}}
	var missed []string
	for _, f := range b.figures {
		for _, j := range f.judged {
			v, ok := f.verdict(j)
			if !ok || b.leavesOut(j) {
				continue
			}
			unit := f.unitOf(j)
			row := []string{f.what, j.as, number(v.value) + unit, number(v.least) + " to " + number(v.most)}
			if j.limit == noLimit {
				compared = append(compared, row)
				continue
			}
			bound := string(j.limit) + " " + number(j.bound) + unit
			limits = append(limits, append(row, bound, yes(v.met)))
			if !v.met {
				missed = append(missed, fmt.Sprintf("%s: %s is %s%s, limit %s", f.what, j.as, number(v.value), unit, bound))
			}
		}
	}
	if n := b.bad(ours); n > 0 {
		missed = append(missed, fmt.Sprintf("answers of sb that were wrong, lost or cut: %d, limit none", n))
	}
	switch n := len(limits) - 1; {
	case len(missed) > 0:
		fmt.Fprintf(w, "**Missed limits: %d of %d.**\n\n* %s\n\n", len(missed), max(n, len(missed)), strings.Join(missed, "\n* "))
	case n > 0:
		fmt.Fprintf(w, "**Every limit is met: %d.**\n\n", n)
	}
	if len(limits) > 1 {
		fmt.Fprintf(w, "## Limits\n\n%s\n", table(limits))
	}
	if len(compared) > 1 {
		fmt.Fprintf(w, "## Compared, without limits\n\n%s\n", table(compared))
	}
	b.reportSpread(w)

	var names []string
	for _, f := range b.figures {
		for name := range f.values {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	order := b.order()
	slices.SortFunc(names, func(x, y string) int { return slices.Index(order, x) - slices.Index(order, y) })
	all := [][]string{append([]string{"median (ratio to P)"}, names...)}
	for _, f := range b.figures {
		row := []string{f.what}
		if f.unit != "" {
			row[0] += " [" + f.unit + "]"
		}
		base, _, _ := median(f.values[proxy])
		for _, name := range names {
			values := f.values[name]
			if len(values) == 0 {
				row = append(row, "")
				continue
			}
			m, _, _ := median(values)
			cell := number(m)
			if base > 0 && name != proxy && f.unit != "" {
				cell += fmt.Sprintf(" (%.2f)", m/base)
			}
			row = append(row, cell)
		}
		all = append(all, row)
	}
	fmt.Fprintf(w, "## Figures\n\n%s\n", table(all))

	answers := [][]string{{"contestant", "right", "wrong", "lost", "cut"}}
	for _, name := range order {
		if t := b.tallies[name]; t != nil {
			answers = append(answers, []string{name, fmt.Sprint(t.right), fmt.Sprint(t.wrong), fmt.Sprint(t.lost), fmt.Sprint(t.cut)})
		}
	}
	if len(answers) > 1 {
		fmt.Fprintf(w, "## Answers, all parts together\n\n%s\n", table(answers))
	}
	for _, name := range order {
		if t := b.tallies[name]; t != nil && t.first != nil {
			fmt.Fprintf(w, "%s: the first that was not right: %.300v\n", name, t.first)
		}
	}
	return len(missed) == 0
}

// leavesOut reports whether the judgement compares a contestant that -among leaves out.
func (b *bench) leavesOut(j *judgement) bool {
	return len(b.among) > 0 && slices.ContainsFunc(j.asks(), func(name string) bool { return !slices.Contains(b.among, name) })
}

// order is the order of all contestants in tables.
func (b *bench) order() []string {
	all := []string{direct, proxy, untuned, floor, synced, naive, alone, calm, aside, asideAgain, plain, whole, inMemory, ours, backlogged, ours + again, streamed, paged, onRedis, ours + effects, ours + newcomer, ours + keeper, ours + header, ours + hosted}
	for _, other := range b.others {
		all = append(all, other, other+effects, other+newcomer, other+keeper)
	}
	return all
}

// reportSpread prints the tables of figures that have a column of one: for each contestant the median, the multiple of P, and the smallest and
// largest multiple.
func (b *bench) reportSpread(w io.Writer) {
	var done []string
	for _, first := range b.figures {
		if first.table == "" || slices.Contains(done, first.table) {
			continue
		}
		done = append(done, first.table)
		var columns []*figure
		head := []string{"median; × P (least to most)"}
		for _, f := range b.figures {
			if f.table == first.table {
				columns = append(columns, f)
				head = append(head, fmt.Sprintf("%s [%s]", f.column, f.unit))
			}
		}
		rows := [][]string{head}
		for _, name := range b.order() {
			row := []string{name}
			for _, f := range columns {
				row = append(row, f.spread(name))
			}
			if strings.Join(row[1:], "") != "" {
				rows = append(rows, row)
			}
		}
		fmt.Fprintf(w, "## One call, %s\n\n%s\n", first.table, table(rows))
	}
}

// spread is a contestant's cell in a table of reportSpread.
func (f *figure) spread(name string) string {
	if len(f.values[name]) == 0 {
		return ""
	}
	value, low, high := median(f.values[name])
	if name == proxy {
		return fmt.Sprintf("%s; %s to %s", number(value), number(low), number(high))
	}
	v, _ := f.verdict(&judgement{of: ratio(name, proxy)})
	return fmt.Sprintf("%s; %s (%s to %s)", number(value), number(v.value), number(v.least), number(v.most))
}

func (b *bench) bad(name string) int {
	if t := b.tallies[name]; t != nil {
		return t.bad()
	}
	return 0
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "**no**"
}

// number prints three digits, more only before the point.
func number(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x):
		return "?"
	case a >= 100 || x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// table prints rows in Markdown, in columns that also people can read.
func table(rows [][]string) string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	var s strings.Builder
	line := func(row []string) {
		for i, cell := range row {
			fmt.Fprintf(&s, "| %s%s ", cell, strings.Repeat(" ", width[i]-len([]rune(cell))))
		}
		s.WriteString("|\n")
	}
	line(rows[0])
	for _, n := range width {
		s.WriteString("| " + strings.Repeat("-", n) + " ")
	}
	s.WriteString("|\n")
	for _, row := range rows[1:] {
		line(row)
	}
	return s.String()
}
