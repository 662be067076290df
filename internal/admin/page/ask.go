package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A viewQuery is what a browser asks of a view. It asks the API in this process, as the officer who is signed in.
type viewQuery struct {
	page    *Page
	r       *http.Request
	officer *switchboard.Officer
	secret  string // of the session
	view    *pageView
	parts   map[string]string // of the path, by the names in the braces of the view's path
	state   url.Values        // of the view, in its address
	command string            // prints the same; "" means that of the view
	after   string            // the cursor of the events, if an open page reads itself again; else ""
}

// get asks the API for the answer at an address, which is decoded into a value of the API's type.
func (q *viewQuery) get(address string, into any) error {
	answer := q.call(http.MethodGet, address, nil, nil)
	if err := answer.refusal(); err != nil {
		return err
	}
	return json.Unmarshal(answer.body.Bytes(), into)
}

// decodeLarge decodes an answer of the API that can be large, in less than half the time that encoding/json takes. It decodes no time.Duration, and names of
// members must be exact. The texts of others in an answer may be whatever the API lets pass.
func decodeLarge(answer []byte, into any) error {
	return jsonv2.Unmarshal(answer, into, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

// send sends a request with a body of JSON, nil for none. The answer is decoded into a value of the API's type, nil for none.
func (q *viewQuery) send(method, address string, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	answer := q.call(method, address, text, http.Header{"Content-Type": {"application/json"}})
	if err := answer.refusal(); err != nil || into == nil {
		return err
	}
	return json.Unmarshal(answer.body.Bytes(), into)
}

// call asks the API. header may be nil.
func (q *viewQuery) call(method, address string, body []byte, header http.Header) *keptAnswer {
	ask := func(ctx context.Context) *keptAnswer {
		answer := &keptAnswer{header: http.Header{}, status: http.StatusOK}
		q.page.o.API(q.officer).ServeHTTP(answer, q.request(method, address, body, header).WithContext(ctx))
		return answer
	}
	if q.after != "" && method == http.MethodGet {
		who := *q.officer
		who.Until = time.Time{}
		whose, _ := json.Marshal(who) // it can be encoded
		answer := q.page.shared.share(q.after, string(whose)+address, func() *keptAnswer { return ask(context.WithoutCancel(q.r.Context())) })
		if answer.refusal() == nil {
			return answer
		}
	}
	return ask(q.r.Context())
}

// request returns a request to the API. header may be nil.
func (q *viewQuery) request(method, address string, body []byte, header http.Header) *http.Request {
	ask := q.r.Clone(q.r.Context())
	ask.Method, ask.Body, ask.ContentLength = method, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	ask.Form, ask.PostForm, ask.TransferEncoding = nil, nil, nil
	path, query, _ := strings.Cut(address, "?")
	ask.URL = &url.URL{RawQuery: query}
	if ask.URL.Path, _ = url.PathUnescape(path); ask.URL.EscapedPath() != path { // as in a request from the network
		ask.URL.RawPath = path
	}
	ask.Header = http.Header{"Accept": {"application/json"}}
	maps.Copy(ask.Header, header)
	return ask
}

// fill writes the parts of the address into a path with names in braces.
func (q *viewQuery) fill(path string) string {
	for name, part := range q.parts {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(part))
	}
	return path
}

// fillPlain does the same for a text that is no path.
func (q *viewQuery) fillPlain(text string) string {
	for name, part := range q.parts {
		text = strings.ReplaceAll(text, "{"+name+"}", part)
	}
	return text
}

// pick returns the named parts of the view's state.
func (q *viewQuery) pick(names ...string) url.Values {
	some := url.Values{}
	for _, name := range names {
		if values := q.state[name]; len(values) > 0 {
			some[name] = values
		}
	}
	return some
}

// linkTo returns the address of a path with a query. pairs are names and values that replace those of the query; an empty value removes the name.
func linkTo(path string, query url.Values, pairs ...string) string {
	all := url.Values{}
	maps.Copy(all, query)
	for i := 0; i+1 < len(pairs); i += 2 {
		if all.Del(pairs[i]); pairs[i+1] != "" {
			all.Set(pairs[i], pairs[i+1])
		}
	}
	if len(all) == 0 {
		return path
	}
	return path + "?" + all.Encode()
}

// A refusalError is a refusal of the API.
type refusalError struct{ access.Problem }

func (e *refusalError) Error() string { return e.Detail }

// problemOf returns what a view says about an error.
func problemOf(err error) access.Problem {
	if refused, _ := errors.AsType[*refusalError](err); refused != nil {
		return refused.Problem
	}
	return access.Problem{Status: http.StatusInternalServerError, Detail: "this page cannot be shown; the log output of Switchboard says why"}
}

// A keptAnswer keeps an answer of the API.
type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *keptAnswer) Header() http.Header                  { return a.header }
func (a *keptAnswer) WriteHeader(status int)               { a.status = status }
func (a *keptAnswer) Write(text []byte) (n int, err error) { return a.body.Write(text) }

// refusal returns a *refusalError unless the API has done what it was asked.
func (a *keptAnswer) refusal() error {
	if a.status < http.StatusMultipleChoices {
		return nil
	}
	e := &refusalError{access.Problem{Status: a.status}}
	if err := json.Unmarshal(a.body.Bytes(), &e.Problem); err != nil {
		return fmt.Errorf("the API refuses with %d, and its answer cannot be read: %w", a.status, err)
	}
	return e
}
