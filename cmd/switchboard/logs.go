package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/logoutput"
)

type logsCmd struct {
	outputFlags
	Config  string   `help:"The configuration of the Switchboard that wrote them." placeholder:"FILE" default:"${config}"`
	Data    string   `help:"Its data folder, unless that is .switchboard beside the configuration." placeholder:"DIR"`
	Servers []string `arg:"" optional:"" name:"server" help:"Only what these servers wrote to stderr; switchboard is Switchboard's own log. Without SERVER, everything."`
	Follow  bool     `help:"Print new lines too, until interrupted." short:"f"`
	Since   pastTime `help:"Only lines since TIME: a time before now, such as 10m or 7d, or an instant." placeholder:"TIME"`
	Lines   *int     `help:"Print at most the last N lines; 0 is all. Without it, 100, or all with --since." short:"n" placeholder:"N"`
}

// defaultLogLines is how many lines logs prints if it is not told otherwise.
const defaultLogLines = 100

// Run prints the lines in the order of their times.
func (c *logsCmd) Run(ctx context.Context, io streams) error {
	limit, since := defaultLogLines, time.Time(c.Since)
	if !since.IsZero() {
		limit = 0
	}
	if c.Lines != nil {
		if limit = *c.Lines; limit < 0 {
			return usageError{errors.New("--lines: want a number of lines, or 0 for all")}
		}
	}
	data := (&commonFlags{Config: c.Config, Data: c.Data}).dataDir()
	reader := logoutput.NewLogReader(data, c.Servers...)
	silent, err := c.findSilent(data)
	if err != nil {
		return explainLogError(data, err)
	}
	entries, at, err := reader.Read(since, limit)
	if err != nil {
		return explainLogError(data, err)
	}
	p := logPrinter{io: io, json: c.JSON}
	if err := p.print(entries); err != nil {
		return err
	}
	for _, name := range silent {
		fmt.Fprintf(io.err, "%s has written nothing to its stderr since its log was begun\n", name)
	}
	if len(entries) == 0 && len(silent) == 0 {
		fmt.Fprintf(io.err, "there are no such lines in %s\n", logoutput.Folder(data))
	}
	if !c.Follow {
		return nil
	}
	return explainLogError(data, reader.Follow(ctx, at, p.print))
}

// findSilent returns the named servers that have written nothing. A name that belongs to no server is an error.
func (c *logsCmd) findSilent(data string) (silent []string, err error) {
	written, err := logoutput.NewLogReader(data).Names()
	if err != nil {
		return nil, err
	}
	configured := config.ServerIDs(c.Config)
	for _, name := range c.Servers {
		switch {
		case slices.Contains(written, name):
		case slices.Contains(configured, name), name == logoutput.Own:
			silent = append(silent, name)
		default:
			known := slices.Compact(slices.Sorted(slices.Values(slices.Concat(configured, written, []string{logoutput.Own}))))
			return nil, usageError{fmt.Errorf("there is no server %q%s", name, config.SuggestName(name, "servers", known))}
		}
	}
	return silent, nil
}

// explainLogError says what to do about files that cannot be read.
func explainLogError(data string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; the logs in %s belong to the user that serves from it", err, logoutput.Folder(data))
	}
	return err
}

// A logPrinter prints lines: as they are, or for people.
type logPrinter struct {
	io    streams
	json  bool
	width int // of the longest name so far
}

func (p *logPrinter) print(entries []logoutput.Line) error {
	for _, e := range entries {
		p.width = max(p.width, len(e.From))
	}
	for _, e := range entries {
		var err error
		if p.json {
			_, err = p.io.raw.Write(append(slices.Clone(e.JSON()), '\n'))
		} else {
			when, text := e.Text()
			_, err = fmt.Fprintf(p.io.out, "%s %-*s | %s\n", when, p.width, e.From, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
