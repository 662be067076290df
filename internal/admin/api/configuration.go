package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A fileAnswer is the answer with the text of one file.
type fileAnswer struct {
	ETag string `header:"ETag"`
	Body struct {
		Path string `json:"path"`
		Text string `json:"text"`
	}
}

type fileList struct {
	Body struct {
		Files []change.ConfigFile `json:"files" doc:"Sorted by path."`
		Next  string              `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

type changeList struct {
	Body struct {
		Changes []change.Revision `json:"changes" doc:"The newest first, without texts."`
		Next    string            `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

// placeOfChange returns the place of a change in the history. A newer change has a smaller place.
func placeOfChange(c change.Revision) string {
	n, _ := strconv.ParseInt(c.ID, 10, 64) // the history numbers its changes
	return fmt.Sprintf("%016x", math.MaxInt64-n)
}

type fileRequest struct {
	Path string `query:"path" required:"true" minLength:"1" maxLength:"512" doc:"The path of the file, relative to the folder of the configuration." example:"tenants/acme/tenant.yaml"`
}

type changeRequest struct {
	FileQuery
	Body struct {
		Text   string `json:"text" maxLength:"1048576" doc:"The whole text of the file."`
		Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why; for the history and the receipt."`
	}
}

type deleteRequest struct {
	FileQuery
	Reason string `query:"reason" maxLength:"500" doc:"Why; for the history and the receipt."`
}

// changeAnswer is the answer to a change: what was made, or, with dry_run, what would be.
type changeAnswer struct {
	ETag string `header:"ETag"`
	Body struct {
		Change   *change.Revision `json:"change,omitempty" doc:"The change that was made and is in force; absent with dry_run. It is without texts, which read-change gives."`
		Trial    *change.Trial    `json:"trial,omitempty" doc:"What the change would do; only with dry_run."`
		Replicas []string         `json:"other_configurations,omitempty" doc:"Replicas that do not serve this configuration yet."`
	}
}

// A FileQuery names a file, and the content that a change replaces.
type FileQuery struct {
	Path        string `query:"path" required:"true" minLength:"1" maxLength:"512" doc:"The path of the file, relative to the folder of the configuration." example:"tenants/acme/tenant.yaml"`
	DryRun      bool   `query:"dry_run" doc:"Only say what the change would do."`
	SkipPast    bool   `query:"skip_past" doc:"With dry_run: leave out the look at last week's decisions, which can take 2 seconds."`
	IfMatch     string `header:"If-Match" maxLength:"80" doc:"The entity tag of the content that is replaced."`
	IfNoneMatch string `header:"If-None-Match" maxLength:"8" doc:"* for a file that does not exist yet."`
}

// precondition returns the entity tag that the change replaces, "" for a new file.
func (q *FileQuery) precondition() (string, error) {
	switch {
	case q.IfMatch != "" && q.IfNoneMatch != "":
		return "", &apiProblem{Problem: access.ProblemOf(http.StatusBadRequest, &switchboard.Error{Text: "send If-Match or If-None-Match, not both"})}
	case q.IfNoneMatch == "*":
		return "", nil
	case q.IfMatch != "" && q.IfMatch != "*" && !strings.HasPrefix(q.IfMatch, "W/"):
		return q.IfMatch, nil
	}
	return "", &apiProblem{Problem: access.ProblemOf(http.StatusPreconditionRequired, &switchboard.Error{
		Code: switchboard.CodeChangedMeanwhile, Text: "a change needs the strong entity tag of the content that it replaces, in If-Match; or If-None-Match: * for a new file",
		Hint: "read the file: the answer has its ETag",
	})}
}

// changed returns the error of a change as the API gives it.
func changed(err error) error {
	if missing, ok := errors.AsType[*change.NotFoundError](err); ok {
		return notFound(missing.Text)
	}
	return err
}

// addConfiguration adds the routes about the files of the configuration.
func (a *API) addConfiguration() {
	write := []int{http.StatusPreconditionFailed, http.StatusPreconditionRequired}
	add(a, route{id: "list-files", method: http.MethodGet, path: "/v1/configuration/files", needs: anyOffice, summary: "The files that the officer may change"},
		func(_ context.Context, q asked, in *PageQuery) (*fileList, error) {
			out := &fileList{}
			var err error
			out.Body.Files, out.Body.Next, err = a.o.Editor.Files(q.officer, in.After, in.Limit)
			return out, err
		})
	add(a, route{id: "read-file", method: http.MethodGet, path: "/v1/configuration/file", needs: anyOffice, summary: "The text of one file, and its entity tag"},
		func(_ context.Context, q asked, in *fileRequest) (*fileAnswer, error) {
			text, err := a.o.Editor.Read(q.officer, in.Path)
			if err == nil && text == nil {
				err = &change.NotFoundError{Text: "there is no file " + in.Path}
			}
			if err != nil {
				return nil, changed(err)
			}
			out := &fileAnswer{ETag: change.ETagOf(text)}
			out.Body.Path, out.Body.Text = in.Path, string(text)
			return out, nil
		})
	make := func(ctx context.Context, q asked, f *FileQuery, w change.Wish) (*changeAnswer, error) {
		w.Path, w.By = f.Path, *q.officer
		out := &changeAnswer{}
		if f.DryRun {
			w.SkipPast = f.SkipPast
			t, err := a.o.Editor.Try(ctx, w)
			if err != nil {
				return nil, changed(err)
			}
			out.ETag, out.Body.Trial = t.ETag, t
			return out, nil
		}
		var err error
		if w.IfMatch, err = f.precondition(); err != nil {
			return nil, err
		}
		c, err := a.o.Editor.Apply(ctx, w)
		if err != nil {
			return nil, changed(err)
		}
		a.tellChanged(c)
		out.Body.Change, out.Body.Replicas = withoutTexts(c), a.o.Reader.Differing()
		out.ETag = etagAfter(c)
		return out, nil
	}
	add(a, route{id: "change-file", method: http.MethodPut, path: "/v1/configuration/file", needs: anyOffice, errors: write, summary: "Change a file: the whole text, checked as a reload checks it, in force when the answer arrives"},
		func(ctx context.Context, q asked, in *changeRequest) (*changeAnswer, error) {
			return make(ctx, q, &in.FileQuery, change.Wish{FileWish: change.FileWish{Text: []byte(in.Body.Text)}, Reason: in.Body.Reason})
		})
	partRoutes{a}.add(write, make)
	add(a, route{id: "delete-file", method: http.MethodDelete, path: "/v1/configuration/file", needs: anyOffice, errors: write, summary: "Delete a file, as a change is made"},
		func(ctx context.Context, q asked, in *deleteRequest) (*changeAnswer, error) {
			return make(ctx, q, &in.FileQuery, change.Wish{Reason: in.Reason})
		})
	add(a, route{id: "list-changes", method: http.MethodGet, path: "/v1/configuration/changes", needs: anyOffice, summary: "The last changes that officers made, the newest first"},
		func(ctx context.Context, q asked, in *PageQuery) (*changeList, error) {
			all, err := a.o.Editor.History(ctx, q.officer)
			out := &changeList{}
			out.Body.Changes, out.Body.Next = cut(*in, all, placeOfChange)
			return out, err
		})
	add(a, route{id: "read-change", method: http.MethodGet, path: "/v1/configuration/changes/{change}", needs: anyOffice, summary: "One change, with the texts before and after and the difference"},
		func(ctx context.Context, q asked, in *ChangePath) (*changeDetail, error) {
			c, err := a.o.Editor.Show(ctx, q.officer, in.Change)
			if err != nil {
				return nil, changed(err)
			}
			out := &changeDetail{}
			out.Body.Revision, out.Body.Diff = *c, c.Diff()
			return out, nil
		})
	add(a, route{id: "revert-change", method: http.MethodPost, path: "/v1/configuration/changes/{change}/revert", needs: anyOffice, errors: write, summary: "Restore what a file was before a change, if it has not been changed since"},
		func(ctx context.Context, q asked, in *struct {
			ChangePath
			Body *struct {
				Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why; for the history and the receipt."`
			}
		},
		) (*changeAnswer, error) {
			reason := ""
			if in.Body != nil {
				reason = in.Body.Reason
			}
			c, err := a.o.Editor.Revert(ctx, *q.officer, in.Change, reason)
			if err != nil {
				return nil, changed(err)
			}
			a.tellChanged(c)
			out := &changeAnswer{}
			out.ETag = etagAfter(c)
			out.Body.Change, out.Body.Replicas = withoutTexts(c), a.o.Reader.Differing()
			return out, nil
		})
}

// etagAfter returns the entity tag of the file after the change; "" if there is no file any more.
func etagAfter(c *change.Revision) string {
	if c.AfterDigest == "" {
		return ""
	}
	return `"` + c.AfterDigest + `"`
}

// withoutTexts returns the change without the texts of the file. The sender has them, and an answer with two whole files would often be too
// long to be kept for its idempotency key.
func withoutTexts(c *change.Revision) *change.Revision {
	short := *c
	short.Before, short.After = nil, nil
	return &short
}

// tellChanged adds the event of a change.
func (a *API) tellChanged(c *change.Revision) {
	a.o.Events.Add(event.Occurrence{Type: event.File, Tenant: c.Tenant, Subject: c.Path, By: c.By})
}

// A ChangePath names a change of the history. Its name is exported, since huma passes over the fields of an embedded type otherwise.
type ChangePath struct {
	Change string `path:"change" maxLength:"20" doc:"The id of the change, as in the list of changes." example:"12"`
}

type changeDetail struct {
	Body struct {
		change.Revision
		Diff string `json:"diff"`
	}
}
