package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type searchCmd struct {
	commonFlags
	targetFlags
	outputFlags
	Limit int      `help:"Print at most this many, 1 to 100." default:"10"`
	Query []string `arg:"" help:"Words for what the tool should do, or its name."`
}

// Run prints the tools of all configured servers that match the words best. It exits 1 if none
// matches.
func (s *searchCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	if s.Limit < 1 || s.Limit > 100 {
		return usageError{fmt.Errorf("--limit %d: want 1 to 100", s.Limit)}
	}
	f, err := s.findTools(ctx, io, strings.Join(s.Query, " "), log)
	if err != nil {
		return err
	}
	f.Tools = f.Tools[:min(s.Limit, len(f.Tools))]
	if s.JSON {
		if err := json.NewEncoder(io.raw).Encode(f); err != nil {
			return err
		}
	} else {
		w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
		for i, t := range f.Tools {
			if i == 0 {
				fmt.Fprintln(w, "SERVER\tTOOL\tWHAT IT DOES")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", t.Server, summaryLine(t.Tool), summaryLine(t.Description))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(f.Starting) > 0 {
		fmt.Fprintf(io.err, "switchboard: %s after %s: %s\n", notAnsweredText, s.Wait, joinIDs(f.Starting))
	}
	if len(f.Tools) == 0 {
		fmt.Fprintf(io.err, "switchboard: none of %s has any of these words\n", count(f.Of, "tool"))
		return errNegative
	}
	return nil
}

func (s *searchCmd) findTools(ctx context.Context, io streams, query string, log *slog.Logger) (*admin.SearchResult, error) {
	t := taskTarget{commonFlags: s.commonFlags, targetFlags: s.targetFlags}
	if !t.findTarget() {
		a, err := t.startApp(ctx, log, app.Options{})
		if err != nil {
			return nil, err
		}
		defer a.Stop()
		return pollUntilStarted(ctx, io, t.Wait, func() (*admin.SearchResult, []switchboard.ServerID, error) {
			f := a.Reads().Search(query)
			return f, f.Starting, nil
		})
	}
	return pollUntilStarted(ctx, io, t.Wait, func() (*admin.SearchResult, []switchboard.ServerID, error) {
		var f admin.SearchResult
		err := t.fetchInto(ctx, "/v1/search?query="+url.QueryEscape(query), &f)
		return &f, f.Starting, err
	})
}
