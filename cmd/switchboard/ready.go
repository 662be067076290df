package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

type readyCmd struct {
	where
}

// readyPatience is how long an answer may take.
const readyPatience = 2 * time.Second

// Run asks /readyz, which needs no key: for health checks in images that have no
// other program.
func (r *readyCmd) Run(ctx context.Context, out streams) error {
	base, err := r.target().base()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", http.NoBody)
	if err != nil {
		return usageError{err}
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // a redirect is no answer
	if err != nil {
		return unreachable{err}
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read from
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return unreachable{err}
	}
	if _, err := fmt.Fprintln(out.out, strings.TrimSpace(string(text))); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errNo
	}
	return nil
}
