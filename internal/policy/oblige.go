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
	if len(o.Detect) > 0 {
		redactAside(&own, o.Detect)
	}
	began := time.Now()
	r, err := next.Call(ctx, &own)
	if o.Log != "" {
		note(ctx, log, o.Log, c, time.Since(began), err)
	}
	switch {
	case err == nil && len(o.Redact)+len(o.Detect) > 0:
		r = redact.Result(r, o.Redact, o.Detect)
	case len(o.Detect) > 0:
		err = redacted(err, o.Detect)
	}
	return r, err
}

// redactAside has redacted what the server says and asks before its result.
func redactAside(c *switchboard.Call, detectors []switchboard.Detector) {
	if tell := c.Notify; tell != nil {
		c.Notify = func(n switchboard.Notification) {
			n.Params = redact.Object(n.Params, detectors)
			tell(n)
		}
	}
	if ask := c.Client.Ask; ask != nil {
		c.Client.Ask = func(ctx context.Context, method string, params []byte) ([]byte, error) {
			return ask(ctx, method, redact.Object(params, detectors))
		}
	}
}

// redacted is an error without what the detectors find in the words that the client gets of it.
func redacted(err error, detectors []switchboard.Detector) error {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		if text := redact.Text(own.Text, detectors); text != own.Text {
			told := *own
			told.Text = text
			return &told
		}
		return err
	}
	if server, ok := errors.AsType[*switchboard.ServerError](err); ok {
		told := *server
		told.Object = redact.Object(server.Object, detectors)
		return &told
	}
	return err
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
		"task", c.Task, "run", c.Run, "tool", loggedAs(c), "outcome", outcome, "took", took)
}

// loggedAs is what a call asks for, in a log: a URI, and what stands in the names of other items, may hold what must not be seen.
func loggedAs(c *switchboard.Call) string {
	if c.Tool == nil {
		return string(c.Server) + "/" + string(c.Item.Kind)
	}
	return c.Tool.ID.String()
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
	all.Redact, all.Detect = union(all.Redact, more.Redact), union(all.Detect, more.Detect)
	if more.Timeout > 0 && (all.Timeout == 0 || more.Timeout < all.Timeout) {
		all.Timeout = more.Timeout
	}
	all.Rate = slower(all.Rate, more.Rate)
	all.Log = louder(all.Log, more.Log)
}
