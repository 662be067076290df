package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/labels"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type suggestionListRequest struct {
	PageQuery
	Server switchboard.ServerID `query:"server" required:"true" minLength:"1" maxLength:"64" doc:"The server that offers the tools."`
}

type suggestionList struct {
	Body struct {
		Suggestions []labels.LabelSuggestion `json:"suggestions" doc:"For the tools without labels: tools with contradictory signs first, then the least sure suggestions."`
		Next        string                   `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
		Total       int                      `json:"total" doc:"How many there are, in all parts of the list."`
	}
}

// A labelRow is a row that an officer accepts for one tool.
type labelRow struct {
	Tool    string             `json:"tool" minLength:"1" maxLength:"128" doc:"The tool."`
	Digest  switchboard.Digest `json:"digest" minLength:"1" maxLength:"80" doc:"The digest of the definition that you have looked at, as in the suggestion. The labels count for this definition alone."`
	Overlay map[string]any     `json:"overlay,omitempty" doc:"Your own row of the overlay, in place of the suggested one, such as {\"capabilities\": [{\"verb\": \"read\", \"resource\": \"fs\"}]}."`
}

type suggestionAcceptance struct {
	Body struct {
		Server switchboard.ServerID `json:"server" minLength:"1" maxLength:"64" doc:"The server that offers the tools."`
		Rows   []labelRow           `json:"rows" minItems:"1" maxItems:"500" doc:"All are accepted, or none."`
		Reason string               `json:"reason,omitempty" maxLength:"500" doc:"Why; for the history and the receipt."`
	}
}

// labelRoutes are the routes about suggested labels.
type labelRoutes struct{ *API }

func (l labelRoutes) add() {
	a := l.API
	known := func(id switchboard.ServerID) error {
		if !admin.HasServer(a.o.Reader, id) {
			return switchboard.Refuse(switchboard.CodeServerUnknown, "there is no server %.64q here", id)
		}
		return nil
	}
	add(a, route{id: "list-suggestions", method: http.MethodGet, path: "/v1/suggestions", needs: switchboard.OfficeOperator, summary: "Suggested labels for the tools of a server that have none, with the signs that they follow from"},
		func(_ context.Context, _ asked, in *suggestionListRequest) (*suggestionList, error) {
			if err := known(in.Server); err != nil {
				return nil, err
			}
			all := labels.List(a.o.Reader.ListOffered(in.Server), in.Server)
			out := &suggestionList{}
			out.Body.Total = len(all)
			out.Body.Suggestions, out.Body.Next = cut(in.PageQuery, all, labels.PlaceOf)
			return out, nil
		})
	add(a, route{
		id: "accept-suggestions", method: http.MethodPost, path: "/v1/suggestions/accept", needs: switchboard.OfficeOperator, errors: []int{http.StatusPreconditionFailed},
		summary: "Add labels to the overlay of a server, each for the definition that you have looked at. SB-CONF-002 if the server offers another one by now",
	},
		func(ctx context.Context, q asked, in *suggestionAcceptance) (*changeAnswer, error) {
			if err := known(in.Body.Server); err != nil {
				return nil, err
			}
			named := make([]labels.NamedRow, len(in.Body.Rows))
			for i, r := range in.Body.Rows {
				named[i] = labels.NamedRow{Tool: r.Tool, Digest: r.Digest}
				if r.Overlay == nil {
					continue
				}
				text, err := json.Marshal(r.Overlay)
				if err != nil {
					return nil, err
				}
				named[i].Overlay = text
			}
			c, err := labels.Accept(ctx, a.o.Reader.ListOffered(in.Body.Server), in.Body.Server, named, a.o.Editor, *q.officer, in.Body.Reason)
			if err != nil {
				return nil, changed(err)
			}
			out := &changeAnswer{}
			if c != nil {
				a.tellChanged(c)
				out.Body.Change, out.ETag = withoutTexts(c), etagAfter(c)
			}
			out.Body.Replicas = a.o.Reader.Differing()
			return out, nil
		})
}
