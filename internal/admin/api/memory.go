package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin/past"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A SpanQuery says how many days a question about the memory is about.
type SpanQuery struct {
	Days int `query:"days" minimum:"1" maximum:"400" default:"30" doc:"The last days, in UTC, with today."`
}

// A MemoryTenantQuery names the tenant that a question about the memory is about.
type MemoryTenantQuery struct {
	Tenant switchboard.TenantID `query:"tenant" maxLength:"64" doc:"The tenant. Without it: the only one that there is, or that you may see."`
}

// A rememberedTool names the tool that a question is about.
type rememberedTool struct {
	MemoryTenantQuery
	SpanQuery
	Server switchboard.ServerID `path:"server" maxLength:"64" doc:"The id of the server."`
	Tool   string               `path:"tool" maxLength:"128" doc:"The server's name of the tool."`
}

func (in *rememberedTool) id() switchboard.ToolID {
	return switchboard.ToolID{Server: in.Server, Name: in.Tool}
}

// memoryRoutes answer from the memory of tools.
type memoryRoutes struct{ *API }

func (a memoryRoutes) add() {
	add(a.API, route{id: "read-tool-memory", method: http.MethodGet, path: "/v1/memory/tools/{server}/{tool}", needs: switchboard.OfficeViewer, summary: "How a tool has done for a tenant, by day: calls, outcomes, codes, latencies, cost"},
		func(ctx context.Context, q asked, in *rememberedTool) (*struct{ Body past.ToolReport }, error) {
			return answer(a.o.Records.Past.Tool(ctx, q.tenant, in.id(), in.Days))
		})
	add(a.API, route{id: "read-tool-errors", method: http.MethodGet, path: "/v1/memory/errors/{server}/{tool}", needs: switchboard.OfficeViewer, summary: "The attempts at a tool without success, by outcome and code, and what was changed after them. No text of an error is kept"},
		func(ctx context.Context, q asked, in *rememberedTool) (*struct{ Body past.ErrorReport }, error) {
			return answer(a.o.Records.Past.Errors(ctx, q.tenant, in.id(), in.Days, q.operator()))
		})
	add(a.API, route{id: "read-similar-tools", method: http.MethodGet, path: "/v1/memory/similar/{server}/{tool}", needs: switchboard.OfficeViewer, summary: "The tools of the tenant that are like a tool, and how they have done"},
		func(ctx context.Context, q asked, in *rememberedTool) (*struct{ Body past.SimilarReport }, error) {
			return answer(a.o.Records.Past.Similar(ctx, q.tenant, in.id(), in.Days))
		})
	add(a.API, route{id: "read-gaps", method: http.MethodGet, path: "/v1/memory/gaps", needs: switchboard.OfficeViewer, summary: "What a tenant lacks: requirements that no tool met, and capabilities that agents asked for"},
		func(ctx context.Context, q asked, in *struct {
			MemoryTenantQuery
			SpanQuery
		},
		) (*struct{ Body past.GapReport }, error) {
			x, err := a.o.Records.Past.Gaps(ctx, q.tenant, in.Days)
			if err != nil {
				return nil, err
			}
			return answer(x, a.addDossiers(ctx, q.officer, x))
		})
	add(a.API, route{id: "suggest-ranking", method: http.MethodGet, path: "/v1/memory/ranking", needs: switchboard.OfficeAdmin, summary: "Which servers the figures of the last days put first, as a change of the tenant's file with claims, for create-proposal. Nothing is changed"},
		func(ctx context.Context, q asked, in *struct {
			MemoryTenantQuery
			SpanQuery
		},
		) (*struct{ Body past.RankingSuggestion }, error) {
			x, err := a.o.Records.Past.SuggestRanking(ctx, q.tenant, in.Days)
			if err != nil {
				return nil, err
			}
			text, err := a.o.Editor.Read(q.officer, past.TenantFile(x.Tenant))
			switch _, missing := errors.AsType[*change.NotFoundError](err); {
			case missing, err == nil && text == nil:
				return answer(x, nil) // the tenant has no file of its own to change
			case err != nil:
				return nil, err
			}
			return answer(x, x.Propose(ctx, text, func(next []byte) (*change.Trial, error) {
				return a.o.Editor.Try(ctx, change.Wish{FileWish: change.FileWish{Path: past.TenantFile(x.Tenant), Text: next}, By: *q.officer, SkipPast: true})
			}))
		})
}

// answer returns the body as the answer of a route. A tool that there is not for the tenant is not found.
func answer[B any](body *B, err error) (*struct{ Body B }, error) {
	if e, ok := errors.AsType[*switchboard.Error](err); ok && e.Code == switchboard.CodeNoSuchTool {
		return nil, &apiProblem{Problem: access.ProblemOf(http.StatusNotFound, e)}
	}
	if err != nil {
		return nil, err
	}
	return &struct{ Body B }{*body}, nil
}

// addDossiers says of each request which search for a tool it has led to.
func (a memoryRoutes) addDossiers(ctx context.Context, by *switchboard.Officer, x *past.GapReport) error {
	all, err := a.o.People.Acquisitions.List(ctx, by)
	if err != nil {
		return err
	}
	for i := range x.Gaps {
		g := &x.Gaps[i]
		for _, d := range all { // the newest first
			if g.Kind == memory.Request && d.Tenant == x.Tenant && d.Capability == g.Name {
				g.Dossier = d.ID + " " + string(d.StatusAt(time.Now()))
				break
			}
		}
	}
	return nil
}
