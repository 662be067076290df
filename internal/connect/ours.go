package connect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
)

// An OwnEntry is an entry in a client's file that starts or calls a Switchboard.
type OwnEntry struct {
	Name  string
	Place Location

	// Command is what the client starts, and Config the configuration that the command names, or "".
	Command []string
	Config  string

	URL string // what the client calls instead
}

// A Traces is what a client's files say about Switchboard.
type Traces struct {
	Entries []OwnEntry // that start or call a Switchboard
	Others  int        // servers of the user's own that are beside them

	// Problems are texts for people: a file cannot be read, or a setting makes the client ignore our entry.
	Problems []error
}

// Look reads the files of a client, and finds the entries that start or call a Switchboard. Some of them may not be from connect.
func Look(c *Client, h *Host) Traces {
	p := &Plan{options: Options{Client: c, Host: h}, files: map[string]*clientText{}}
	var v Traces
	broken := map[string]bool{}
	for _, place := range c.places(h) {
		entries, err := p.entries(place)
		if err != nil {
			if !broken[place.File] {
				broken[place.File] = true
				v.Problems = append(v.Problems, err)
			}
			continue
		}
		found := false
		for _, e := range entries {
			o, ok := ownEntry(e, place)
			switch {
			case ok:
				v.Entries = append(v.Entries, o)
				found = true
			case place.own():
				v.Others++
			}
		}
		if t := p.text(place.File); found && c.blocked != nil && t.text != nil {
			if values, err := clientfile.Values(place.File, t.text, c.form); err == nil {
				if why := c.blocked(values); why != "" {
					v.Problems = append(v.Problems, fmt.Errorf("%s: %s", place.File, why))
				}
			}
		}
	}
	return v
}

// ownEntry reports whether an entry starts a Switchboard on stdio, or has our name and an address.
func ownEntry(e clientfile.Entry, place Location) (OwnEntry, bool) {
	o := OwnEntry{Name: e.Name, Place: place, Command: entryWords(e)}
	if len(o.Command) >= 2 && o.Command[1] == "stdio" {
		base := o.Command[0][strings.LastIndexAny(o.Command[0], `/\`)+1:]
		if strings.TrimSuffix(base, ".exe") == Name {
			o.Config = valueOf(o.Command, "--config")
			return o, true
		}
	}
	if len(o.Command) == 0 && (e.Name == Name || strings.HasPrefix(e.Name, Name+"-")) {
		o.URL = address(e.Value)
	}
	return o, o.URL != ""
}

// entryWords returns the command of an entry as words, or nil if it has none.
func entryWords(e clientfile.Entry) []string {
	var o struct {
		Command any
		Args    []string
	}
	if json.Unmarshal(e.Value, &o) != nil {
		return nil
	}
	switch c := o.Command.(type) {
	case string:
		return append([]string{c}, o.Args...)
	case []any:
		var words []string
		for _, w := range c {
			words = append(words, fmt.Sprint(w))
		}
		return words
	}
	return nil
}

// valueOf returns the word behind a flag, or the text behind "flag=", or "".
func valueOf(words []string, flag string) string {
	if i := slices.Index(words, flag); i > 0 && i+1 < len(words) {
		return words[i+1]
	}
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, flag+"="); ok {
			return v
		}
	}
	return ""
}
