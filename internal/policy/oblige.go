package policy

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/summit-switchboard/switchboard/internal/redact"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// oblige makes the call under its obligations. The time, the rate and an
// approval go on with the call, to those who measure, count and ask; the rest is
// done here.
func oblige(ctx context.Context, o switchboard.Obligations, c *switchboard.Call, log *slog.Logger, next switchboard.Caller) (switchboard.Result, error) {
	own := *c
	own.Obligations = o
	began := time.Now()
	r, err := next.Call(ctx, &own)
	if o.Log != "" {
		note(ctx, log, o.Log, c, time.Since(began), err)
	}
	if err == nil && len(o.Redact) > 0 {
		r = redact.Fields(r, o.Redact)
	}
	return r, err
}

// note logs a call because policy asks for it: whose, of what and how it ended,
// and nothing of what was said.
func note(ctx context.Context, log *slog.Logger, level string, c *switchboard.Call, took time.Duration, err error) {
	var l slog.Level
	if l.UnmarshalText([]byte(level)) != nil {
		l = slog.LevelInfo
	}
	outcome := "answered"
	if err != nil {
		outcome = "failed"
		if own, ok := errors.AsType[*switchboard.Error](err); ok {
			outcome = string(own.Code)
		}
	}
	log.Log(ctx, l, "call", "why", "policy asks for it", "tenant", c.Principal.Tenant, "principal", c.Principal.ID,
		"task", c.Task, "run", c.Run, "tool", c.Tool.ID.String(), "outcome", outcome, "took", took)
}

// combine adds obligations; of each, the strictest counts.
func combine(all *switchboard.Obligations, more switchboard.Obligations) {
	if more.None() {
		return
	}
	if more.Approval != nil {
		all.Approval = stricter(all.Approval, *more.Approval)
	}
	all.Notify = union(all.Notify, more.Notify)
	all.Redact = union(all.Redact, more.Redact)
	if more.Timeout > 0 && (all.Timeout == 0 || more.Timeout < all.Timeout) {
		all.Timeout = more.Timeout
	}
	all.Rate = slower(all.Rate, more.Rate)
	all.Log = louder(all.Log, more.Log)
}
