package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

type eventsCmd struct {
	serverFlags
	Tenant switchboard.TenantID `help:"Only what is about this tenant." placeholder:"ID"`
}

// maxEvent limits the size of one event.
const maxEvent = 64 << 10

// Run prints what changes at a running Switchboard, until it ends or the command is interrupted.
func (e *eventsCmd) Run(ctx context.Context, out streams) error {
	t := e.asTarget()
	path := "/v1/events"
	if e.Tenant != "" {
		path += "?tenant=" + url.QueryEscape(string(e.Tenant))
	}
	resp, err := t.openAdmin(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	events := wire.NewEventReader(resp.Body, maxEvent)
	for {
		next, err := events.Next()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return unreachableError{errors.New("the stream has ended: Switchboard stops, or the key is not valid any more")}
		case err != nil:
			return unreachableError{err}
		}
		if e.JSON {
			fmt.Fprintf(out.raw, "%s\n", next.Data)
			continue
		}
		var one event.Occurrence
		if err := json.Unmarshal(next.Data, &one); err != nil {
			return err
		}
		if next.Type == event.Capability {
			one.Type, one.Request = event.Capability, &event.CapabilityRequest{}
			if err := json.Unmarshal(next.Data, one.Request); err != nil {
				return err
			}
			one.Time = one.Request.At
		}
		fmt.Fprintf(out.out, "%s  %-13s  %s\n", one.Time.Local().Format(time.TimeOnly), one.Type, eventText(&one))
	}
}

// eventText describes an event in words.
func eventText(e *event.Occurrence) string {
	text := printable(e.Subject, 100)
	switch e.Type {
	case event.Server:
		text = fmt.Sprintf("%s is %s", e.Server, cmp.Or(text, "changed"))
	case event.Pin:
		text = fmt.Sprintf("other definitions of %s are frozen or suspended than before; see: switchboard pins list --changed", e.Server)
	case event.Capability:
		q := e.Request
		return fmt.Sprintf("%s of %s asks for %s, because: %s; see: switchboard approvals show %s", printable(q.PrincipalID, 64), q.Tenant, printable(q.Capability, 100), printable(q.Reason, 600), printable(q.ID, 64))
	case event.Resync:
		text = "events are missing"
	}
	if e.Tenant != "" {
		text += " of " + string(e.Tenant)
	}
	if e.By != "" {
		text += ", by " + printable(e.By, 64)
	}
	if e.Replica != "" {
		text += ", at " + e.Replica
	}
	return text
}

// openAdmin begins to read a stream of the admin API. The caller closes the body.
func (t *taskTarget) openAdmin(ctx context.Context, path string) (*http.Response, error) {
	base, err := t.baseURL()
	if err != nil {
		return nil, err
	}
	key := os.Getenv(keyVariable)
	if t.guessed && key == "" {
		return nil, errNothingServes
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, usageError{err}
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := t.client().Do(req)
	if err != nil {
		return nil, unreachableError{noAnswerError(req.URL, err)}
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return nil, t.hintKey(resp.StatusCode, problemError(text, fmt.Errorf("%s answered %s", req.URL.Redacted(), resp.Status)))
	}
	return resp, nil
}
