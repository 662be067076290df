package linked

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

const heading = `Licenses

Switchboard is Copyright 2026 The Switchboard Authors, and licensed under the Apache License, Version 2.0: text 1.

The program contains these works of others. This file names the license of each by its SPDX id, and has every text once: a work's row says
which texts came with it. It is made from the modules that are linked for Linux, macOS, Windows and FreeBSD. Those for one of them only
are here too.

`

// A catalog numbers texts.
type catalog struct {
	texts []string
	users [][]string // of each text
	ids   []string   // the licenses in each text
}

// add returns the number of the text, from 1.
func (c *catalog) add(user string, t Text) int {
	for i, text := range c.texts {
		if text == t.Text {
			c.users[i] = append(c.users[i], user)
			return i + 1
		}
	}
	c.texts = append(c.texts, t.Text)
	c.users = append(c.users, []string{user})
	c.ids = append(c.ids, strings.Join(t.IDs, " AND "))
	return len(c.texts)
}

// Render returns the file that passes the licenses on. license is the license of Switchboard itself.
func Render(license string, works []Work) string {
	var c catalog
	c.add("Switchboard", Text{Text: tidy(license), IDs: []string{"Apache-2.0"}})
	var rows strings.Builder
	w := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "WORK\tVERSION\tLICENSE\tTEXTS") // a Builder takes everything, here and below
	for _, work := range works {
		var numbers []string
		for _, t := range work.Texts {
			numbers = append(numbers, fmt.Sprint(c.add(work.Name, t)))
		}
		version := work.Version
		if version == "" {
			version = "-"
			if work.In != "" {
				version = "as in " + work.In
			}
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", work.Name, version, strings.Join(work.IDs(), " AND "), strings.Join(numbers, ", "))
	}
	_ = w.Flush()
	var out strings.Builder
	out.WriteString(heading)
	for row := range strings.Lines(rows.String()) {
		out.WriteString(strings.TrimRight(row, " \n") + "\n")
	}
	for i, text := range c.texts {
		kind := c.ids[i]
		if kind == "" {
			kind = "a notice"
		}
		fmt.Fprintf(&out, "\n%s\nText %d: %s, with %s\n%s\n\n%s", line, i+1, kind, strings.Join(c.users[i], ", "), line, text)
	}
	return out.String()
}

var line = strings.Repeat("=", 100)
