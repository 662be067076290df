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

	as    string // what is judged; "" where nothing is
	of    func(at) float64
	bound float64
	least bool // the bound is the least, not the most
}

// at is what a contestant reached in one round.
type at func(name string) float64

func toProxy(at at) float64 { return at(ours) / at(proxy) }

func (b *bench) figure(what, unit string) *figure {
	f := &figure{what: what, unit: unit, values: map[string][]float64{}}
	b.figures = append(b.figures, f)
	return f
}

func (f *figure) see(name string, value float64) {
	f.values[name] = append(f.values[name], value)
}

// judge has of, which is called as as, be held to a limit.
func (f *figure) judge(as string, of func(at) float64) *figure {
	f.as, f.of = as, of
	return f
}

func (f *figure) atMost(bound float64) *figure {
	f.bound = bound
	return f
}

func (f *figure) atLeast(bound float64) *figure {
	f.bound, f.least = bound, true
	return f
}

// rounds returns how often the contestant that is judged was seen.
func (f *figure) rounds() int {
	if n := len(f.values[ours]); n > 0 {
		return n
	}
	return len(f.values[onRedis]) // what is of Redis alone
}

// verdict returns what is judged, as the median of its values of all rounds,
// the least and the most of them, and whether the limit is met.
func (f *figure) verdict() (value, least, most float64, met bool) {
	var all []float64
	for r := range f.rounds() {
		all = append(all, f.of(func(name string) float64 {
			if r < len(f.values[name]) {
				return f.values[name][r]
			}
			return math.NaN()
		}))
	}
	value, least, most = median(all)
	if f.least {
		return value, least, most, value >= f.bound
	}
	return value, least, most, value <= f.bound // not met where it is no number
}

// report prints all tables, and reports whether all limits are met.
func (b *bench) report(w io.Writer) (met bool) {
	met = true
	fmt.Fprintf(w, "%s, %s/%s, %d processors; medians of %s.\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), plural(b.rounds, "round"))
	limits := [][]string{{"figure", "judged", "value", "least to most", "limit", "met"}}
	for _, f := range b.figures {
		if f.as == "" || f.rounds() == 0 {
			continue
		}
		value, least, most, ok := f.verdict()
		bound := "≤ "
		if f.least {
			bound = "≥ "
		}
		unit := ""
		if !strings.Contains(f.as, "/") && f.unit != "" {
			unit = " " + f.unit
		}
		limits = append(limits, []string{f.what, f.as, number(value) + unit, number(least) + " to " + number(most), bound + number(f.bound) + unit, yes(ok)})
		met = met && ok
	}
	if n := b.bad(ours); n > 0 {
		met = false
	}
	if len(limits) > 1 {
		fmt.Fprintf(w, "## Limits\n\n%s\n", table(limits))
	}

	var names []string
	for _, f := range b.figures {
		for name := range f.values {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	order := append([]string{direct, proxy, naive, alone, calm, aside, asideAgain, plain, whole, inMemory, ours, onRedis, keyless}, b.others...)
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
	return met
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
