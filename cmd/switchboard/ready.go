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
	locationFlags
}

// readyTimeout limits how long the answer may take.
const readyTimeout = 2 * time.Second

// Run requests /readyz, which needs no key. It serves health checks in images without another program.
func (r *readyCmd) Run(ctx context.Context, out streams) error {
	t := r.asAgentsTarget()
	base, err := t.baseURL()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", http.NoBody)
	if err != nil {
		return usageError{err}
	}
	resp, err := t.client().Do(req)
	if err != nil {
		return unreachableError{err}
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read from
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return unreachableError{err}
	}
	if _, err := fmt.Fprintln(out.out, strings.TrimSpace(string(text))); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errNegative
	}
	return nil
}
