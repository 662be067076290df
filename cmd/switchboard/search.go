package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type searchCmd struct {
	common
	asked
	output
	Limit int      `help:"Print at most this many, 1 to 100." default:"10"`
	Query []string `arg:"" help:"What the tool shall do, in words, or what it is called."`
}

// Run prints which tools of all servers that are configured fit the words best.
// It exits 1 where none does.
func (s *searchCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	if s.Limit < 1 || s.Limit > 100 {
		return usageError{fmt.Errorf("--limit %d: want 1 to 100", s.Limit)}
	}
	f, err := s.find(ctx, io, strings.Join(s.Query, " "), log)
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
			fmt.Fprintf(w, "%s\t%s\t%s\n", t.Server, summary(t.Tool), summary(t.Description))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(f.Starting) > 0 {
		fmt.Fprintf(io.err, "switchboard: %s after %s: %s\n", notAnswered, s.Wait, list(f.Starting))
	}
	if len(f.Tools) == 0 {
		fmt.Fprintf(io.err, "switchboard: none of %s has any of these words\n", count(f.Of, "tool"))
		return errNo
	}
	return nil
}

func (s *searchCmd) find(ctx context.Context, io streams, query string, log *slog.Logger) (*app.SearchResult, error) {
	t := target{common: s.common, asked: s.asked}
	if t.URL = t.url(&t.common); t.URL == "" {
		a, err := t.start(ctx, log, app.Options{})
		if err != nil {
			return nil, err
		}
		defer a.Stop()
		return untilAnswered(ctx, io, t.Wait, func() (*app.SearchResult, []switchboard.ServerID, error) {
			f := a.Search(query)
			return f, f.Starting, nil
		})
	}
	return untilAnswered(ctx, io, t.Wait, func() (*app.SearchResult, []switchboard.ServerID, error) {
		var f app.SearchResult
		err := t.inspect(ctx, "/v1/search?query="+url.QueryEscape(query), &f)
		return &f, f.Starting, err
	})
}
