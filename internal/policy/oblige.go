package policy

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/summit-switchboard/switchboard/internal/redact"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// callUnderObligations makes the call under its obligations. Timeout, rate and approval are passed
// on with the call to other wrappers. The other obligations are carried out here.
func callUnderObligations(ctx context.Context, o switchboard.Obligations, c *switchboard.Call, log *slog.Logger, next switchboard.Caller) (switchboard.Result, error) {
	own := *c
	own.Obligations = o
	if len(o.Detect) > 0 {
		redactMessages(&own, o.Detect)
	}
	began := time.Now()
	r, err := next.Call(ctx, &own)
	if o.Log != "" {
		logCall(ctx, log, o.Log, c, time.Since(began), err)
	}
	switch {
	case err == nil && len(o.Redact)+len(o.Detect) > 0:
		r = redact.Result(r, o.Redact, o.Detect)
	case len(o.Detect) > 0:
		err = redactError(err, o.Detect)
	}
	return r, err
}

// redactMessages redacts the notifications and questions that the server sends before its result.
func redactMessages(c *switchboard.Call, detectors []switchboard.Detector) {
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

// redactError removes what the detectors find from the part of an error that the client sees.
func redactError(err error, detectors []switchboard.Detector) error {
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

// logCall logs a call because policy asks for it: the principal, the tool and the outcome, but no
// arguments and no result.
func logCall(ctx context.Context, log *slog.Logger, level string, c *switchboard.Call, took time.Duration, err error) {
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

// loggedAs names the target of a call in a log. URIs and the names of items other than tools may
// hold secrets, so they are left out.
func loggedAs(c *switchboard.Call) string {
	if c.Tool == nil {
		return string(c.Server) + "/" + string(c.Item.Kind)
	}
	return c.Tool.ID.String()
}

// addObligations adds more to all. The strictest of each kind counts.
func addObligations(all *switchboard.Obligations, more switchboard.Obligations) {
	if more.Empty() {
		return
	}
	if more.Approval != nil {
		all.Approval = combineApprovals(all.Approval, *more.Approval)
	}
	all.Notify = union(all.Notify, more.Notify)
	all.Redact, all.Detect = union(all.Redact, more.Redact), union(all.Detect, more.Detect)
	if more.Timeout > 0 && (all.Timeout == 0 || more.Timeout < all.Timeout) {
		all.Timeout = more.Timeout
	}
	all.Rate = combineRates(all.Rate, more.Rate)
	all.Log = higherLevel(all.Log, more.Log)
}
