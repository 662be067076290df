package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An adminAnswer is an answer of the admin API.
type adminAnswer struct {
	status int
	header http.Header
	body   []byte
}

// errNothingServes says that a command found no Switchboard by itself.
var errNothingServes = unreachableError{errors.New("no Switchboard serves from this folder; is `switchboard serve` running? One that serves elsewhere is named with --config, --data, or --url and a person's key in " + keyVariable)}

// A lostAnswerError says that the connection broke after a request had left, or might have left.
type lostAnswerError struct{ error }

// Unwrap returns the cause.
func (e lostAnswerError) Unwrap() error { return e.error }

// askAdmin sends a request to the admin API of a running Switchboard. body, if not nil, is sent as JSON.
// A problem is returned as an error. See changeAdmin for requests that change something.
func (t *taskTarget) askAdmin(ctx context.Context, method, path string, body any) (*adminAnswer, error) {
	answer, err := t.exchange(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	return t.refuseProblem(path, answer)
}

// maxPatience limits how long askPatiently asks for one part, every patienceInterval.
const (
	maxPatience      = time.Minute
	patienceInterval = time.Second
)

// askPatiently is askAdmin for one part of a long question that changes nothing. While Switchboard is too busy, or its store is away, it asks again: the
// parts before need not be asked again then.
func (t *taskTarget) askPatiently(ctx context.Context, method, path string, body any) (*adminAnswer, error) {
	for until := time.Now().Add(maxPatience); ; {
		answer, err := t.exchange(ctx, method, path, body)
		if err != nil {
			return nil, err
		}
		busy := answer.status == http.StatusTooManyRequests || answer.status == http.StatusServiceUnavailable
		if !busy || time.Now().After(until) {
			return t.refuseProblem(path, answer)
		}
		select {
		case <-time.After(patienceInterval):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// refuseProblem returns the answer to a request for path, or an error if it is a problem.
func (t *taskTarget) refuseProblem(path string, answer *adminAnswer) (*adminAnswer, error) {
	if answer.status < http.StatusBadRequest {
		return answer, nil
	}
	path, _, _ = strings.Cut(path, "?")
	err := problemError(answer.body, errors.Join(t.fault, fmt.Errorf("%s answered %d %s: %.200q", path, answer.status, http.StatusText(answer.status), answer.body)))
	return nil, t.hintKey(answer.status, err)
}

// hintKey adds to a refusal of a request where a command reads the key.
func (t *taskTarget) hintKey(status int, err error) error {
	e, ok := errors.AsType[*switchboard.Error](err)
	if !ok || status != http.StatusUnauthorized || e.Hint != "" {
		return err
	}
	switch {
	case os.Getenv(keyVariable) == "":
		e.Hint = "put a person's key into the environment variable " + keyVariable
	case t.row != nil:
		e.Hint = "it is the key in the environment variable " + keyVariable + "; without one you ask as this machine's operator"
	}
	return err
}

// exchange is askAdmin for any answer. header has names and values in turn. If the answer is lost, the error is a lostAnswerError.
func (t *taskTarget) exchange(ctx context.Context, method, path string, body any, header ...string) (*adminAnswer, error) {
	base, err := t.baseURL()
	if err != nil {
		return nil, err
	}
	key := os.Getenv(keyVariable)
	if t.guessed && key == "" { // what listens at the default address belongs to another folder, or to another user
		return nil, errNothingServes
	}
	var send io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(text)
	}
	connected := false
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	req, err := http.NewRequestWithContext(traced, method, base+path, send)
	if err != nil {
		return nil, usageError{err}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := t.client().Do(req)
	switch {
	case err != nil && connected:
		return nil, lostAnswerError{unreachableError{lostAnswerText(req.URL, err)}}
	case err != nil:
		return nil, unreachableError{noAnswerError(req.URL, err)}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, lostAnswerError{unreachableError{lostAnswerText(req.URL, err)}}
	}
	return &adminAnswer{resp.StatusCode, resp.Header, text}, nil
}

// lostAnswerText returns the error of a connection to u that broke before the answer.
func lostAnswerText(u *url.URL, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which is in the text
	}
	return fmt.Errorf("%s://%s took the request, and the connection broke before the answer: %w", u.Scheme, u.Host, err)
}

// problemError returns problem details as an error, or otherwise if they are none.
func problemError(text []byte, otherwise error) error {
	var p struct {
		Detail string           `json:"detail"`
		Code   switchboard.Code `json:"code"`
		Hint   string           `json:"hint"`
		Faults []struct {
			Where string `json:"where"`
			Text  string `json:"text"`
		} `json:"faults"`
	}
	if err := json.Unmarshal(text, &p); err != nil || p.Detail == "" {
		return otherwise
	}
	for _, f := range p.Faults {
		p.Detail += fmt.Sprintf("; %s: %s", f.Where, f.Text)
	}
	if p.Code == "" {
		return usageError{errors.New(p.Detail)}
	}
	return &switchboard.Error{Code: p.Code, Text: p.Detail, Hint: p.Hint}
}

// fetchInto reads what the admin API of a running Switchboard has at path into v.
func (t *taskTarget) fetchInto(ctx context.Context, path string, v any) error {
	answer, err := t.askAdmin(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer.body, v)
}

// postInto sends a question that changes nothing, as JSON, and reads the answer into v.
func (t *taskTarget) postInto(ctx context.Context, path string, body, v any) error {
	answer, err := t.askAdmin(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(answer.body))
	d.UseNumber()
	return d.Decode(v)
}

// targetAt returns the Switchboard at a URL, for its admin API.
func (c *commonFlags) targetAt(url string) *taskTarget {
	return (&locationFlags{URL: url, Config: c.Config, Data: c.Data}).asTarget()
}

// fetchList reads all pages of a list of the admin API at path. member is the member of the answers with the entries.
func fetchList[E any](ctx context.Context, t *taskTarget, path, member string, q url.Values) ([]E, error) {
	all := []E{}
	err := t.fetchPages(ctx, path, q, func(page []byte) (next string, err error) {
		var p map[string]json.RawMessage
		if err := json.Unmarshal(page, &p); err != nil {
			return "", err
		}
		var part []E
		if err := json.Unmarshal(p[member], &part); err != nil {
			return "", err
		}
		all = append(all, part...)
		if p["next"] == nil {
			return "", nil
		}
		return next, json.Unmarshal(p["next"], &next)
	})
	return all, err
}

// fetchPages reads the pages of a list of the admin API, one after the other. read returns the next of a page; "" ends the list.
func (t *taskTarget) fetchPages(ctx context.Context, path string, q url.Values, read func(page []byte) (next string, err error)) error {
	q = maps.Clone(q)
	if q == nil {
		q = url.Values{}
	}
	q.Set("limit", "500")
	for {
		answer, err := t.askAdmin(ctx, http.MethodGet, path+"?"+q.Encode(), nil)
		if err != nil {
			return err
		}
		next, err := read(answer.body)
		switch {
		case err != nil || next == "":
			return err
		case next == q.Get("after"):
			return fmt.Errorf("%s does not get on: it names the same next part again", path)
		}
		q.Set("after", next)
	}
}
