package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type explainRequest struct {
	Tenant      switchboard.TenantID `path:"tenant" maxLength:"64" doc:"The tenant of the task."`
	Task        switchboard.TaskID   `query:"task" maxLength:"64" doc:"The task; the tenant's default task if absent."`
	Principal   string               `query:"principal" maxLength:"64" doc:"The id of the key to decide for. If absent: whoever calls without a key; where keyless callers belong to another tenant, the only key of the tenant."`
	Tokens      bool                 `query:"tokens" doc:"Count the tokens of each tool."`
	Budget      int                  `query:"budget" minimum:"1" maximum:"10000000" doc:"A token budget in place of the task's."`
	Definitions bool                 `query:"definitions" doc:"Give each tool's definition, as the client gets it."`
	WhatIfQuery
	TriedFileQuery
}

// A WhatIfQuery replaces inputs of a decision: of one that is made now, or of a recorded one.
type WhatIfQuery struct {
	Tier    string                 `query:"tier" maxLength:"64" doc:"What if the caller had this tier? One of the tenant's."`
	Mode    switchboard.Mode       `query:"mode" enum:"observe,assist,autopilot" doc:"What if the caller had this mode?"`
	At      time.Time              `query:"at" doc:"What if it were this instant? It counts for policies that read the clock."`
	Without []switchboard.ServerID `query:"without" maxItems:"64" doc:"What if these servers were out? With commas between them."`
}

// whatIf returns the inputs that the query replaces.
func (in *WhatIfQuery) whatIf() admin.DecisionWhatIf {
	return admin.DecisionWhatIf{Tier: in.Tier, Mode: in.Mode, At: in.At, Without: in.Without}
}

// A TriedFileQuery gives a file of the configuration another text, for one decision.
type TriedFileQuery struct {
	File string `query:"file" maxLength:"512" doc:"What if this file of the configuration had another text? Needs the office that may change it." example:"tenants/acme/tenant.yaml"`
	Text string `query:"text" maxLength:"16384" doc:"The whole text of the file; without it, the file is removed."`
}

type tenantList struct {
	Body struct {
		Tenants []admin.TenantSummary `json:"tenants" doc:"Sorted by id."`
		Next    string                `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

type taskList struct {
	Body struct {
		Tasks []admin.TaskOffer `json:"tasks" doc:"Sorted by tenant and id."`
		Next  string            `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

type decisionQuery struct {
	TenantQuery
	PageQuery
	Task      switchboard.TaskID  `query:"task" maxLength:"64" doc:"The task."`
	Principal string              `query:"principal" maxLength:"384" doc:"The id of the caller."`
	Outcome   receipt.CallOutcome `query:"outcome" enum:"ok,refused" doc:"refused: the task could not start."`
	Digest    switchboard.Digest  `query:"digest" pattern:"^sha256:[0-9a-f]{64}$" doc:"The digest of the decision. An answer can have fewer entries than limit although there are more: see next."`
	Since     time.Time           `query:"since" doc:"From this instant on."`
	Until     time.Time           `query:"until" doc:"Before this instant."`
}

type decisionPath struct {
	TenantQuery
	Node  string `path:"node" maxLength:"64" doc:"The part of the decision's id before the slash: who has recorded it."`
	Entry string `path:"entry" maxLength:"64" doc:"The part behind the slash: a number, or an instant."`
	WhatIfQuery
}

type resolveRequest struct {
	Tenant       switchboard.TenantID `query:"tenant" maxLength:"64" doc:"The tenant. An operator must name it. Without it: the only tenant of any other officer."`
	Capabilities []string             `query:"capability,explode" maxItems:"256" doc:"A capability, such as io.fs.read or io.fs.read@^1: repeat the parameter for each one. Without it: each capability that exists for the tenant."`
	Probe        bool                 `query:"probe" doc:"Probe what the capabilities depend on first, and wait for the results for 5 seconds at most. While four other answers wait, this one is refused with SB-ROUT-003."`
	Contracts    bool                 `query:"contracts" doc:"Also say what each capability promises and needs, and which tools provide it."`
}

// maxProposals limits the decisions with another file that are made at once: each reads and compiles the configuration.
const maxProposals = 2

// A proposalReader reads configurations with another file.
type proposalReader struct {
	*API
	free chan struct{} // holds a value for each one that is in use
}

// whatIf returns what the decision of a request is made with. The caller calls done behind the decision.
func (a proposalReader) whatIf(ctx context.Context, q asked, in *explainRequest) (w admin.DecisionWhatIf, done func(), err error) {
	w = in.whatIf()
	if in.File == "" {
		if in.Text != "" {
			err = badRequest("text has no file; say which with file=PATH")
		}
		return w, func() {}, err
	}
	if !strings.Contains(in.File, "/") && in.File != "taxonomy.yaml" {
		return w, nil, badRequest("an address tries no main file, because that names programs and where they connect to: try it with \"switchboard config put --dry-run\"")
	}
	select {
	case a.free <- struct{}{}:
		done = func() { <-a.free }
	default:
		return w, nil, switchboard.Refuse(switchboard.CodeOverloaded, "%d decisions with another file are being made, the most at once; try again", maxProposals)
	}
	var text []byte
	if in.Text != "" {
		text = []byte(in.Text)
	}
	if w.Config, err = a.o.Editor.Propose(ctx, q.officer, q.tenant, map[string][]byte{in.File: text}); err != nil {
		done()
		return w, nil, changed(err)
	}
	return w, done, nil
}

// addDecisions adds the routes about tasks and about decisions that are made to be shown.
func (a *API) addDecisions() {
	add(a, route{id: "list-tenants", method: http.MethodGet, path: "/v1/tenants", needs: switchboard.OfficeViewer, summary: "The tenants that the officer may see, with their tasks"},
		func(_ context.Context, q asked, in *struct {
			TenantQuery
			PageQuery
		},
		) (*tenantList, error) {
			seen := slices.DeleteFunc(a.o.Reader.Tenants(), func(t admin.TenantSummary) bool {
				return !q.officer.Sees(t.Tenant) || q.tenant != "" && q.tenant != t.Tenant
			})
			out := &tenantList{}
			out.Body.Tenants, out.Body.Next = cut(in.PageQuery, seen, func(t admin.TenantSummary) string { return string(t.Tenant) })
			return out, nil
		})
	add(a, route{id: "list-tasks", method: http.MethodGet, path: "/v1/tasks", needs: switchboard.OfficeViewer, summary: "The tasks, with the tools that each gets now for a caller that may bind it, and their tokens"},
		func(ctx context.Context, q asked, in *struct {
			TenantQuery
			PageQuery
		},
		) (*taskList, error) {
			seen := slices.DeleteFunc(admin.TaskNames(a.o.Reader, q.tenant), func(t admin.TaskOffer) bool { return !q.officer.Sees(t.Tenant) })
			out := &taskList{}
			out.Body.Tasks, out.Body.Next = cut(in.PageQuery, seen, func(t admin.TaskOffer) string { return t.Place() })
			admin.OfferTasks(ctx, a.o.Reader, out.Body.Tasks)
			return out, nil
		})
	proposals := proposalReader{a, make(chan struct{}, maxProposals)}
	add(a, route{id: "make-decision", method: http.MethodGet, path: "/v1/tenants/{tenant}/decision", needs: switchboard.OfficeViewer, summary: "The decision for a task as it would be made now, with every candidate and every reason"},
		func(ctx context.Context, q asked, in *explainRequest) (*struct{ Body admin.Explanation }, error) {
			p, err := a.o.Reader.Principal(q.tenant, in.Principal)
			if err != nil {
				return nil, err
			}
			w, done, err := proposals.whatIf(ctx, q, in)
			if err != nil {
				return nil, err
			}
			defer done()
			x, err := a.o.Reader.Explain(ctx, p, admin.ExplainQuery{
				Task: in.Task, Tokens: in.Tokens, Budget: in.Budget, Definitions: in.Definitions, NoMessages: !q.operator(), WhatIf: w,
			})
			if err != nil {
				return nil, err
			}
			return &struct{ Body admin.Explanation }{*x}, nil
		})
	add(a, route{id: "resolve-capabilities", method: http.MethodGet, path: resolvePath, needs: switchboard.OfficeViewer, summary: "Whether capabilities may be used now: the verdict on each, what blocks it, and what helps. An operator names the tenant"},
		func(ctx context.Context, q asked, in *resolveRequest) (*struct{ Body admin.Resolution }, error) {
			if q.tenant == "" {
				return nil, badRequest("name the tenant, as in ?tenant=ID")
			}
			x, err := admin.Resolve(ctx, a.o.Reader, bind.ResolveQuery{Tenant: q.tenant, Capabilities: in.Capabilities, Probe: in.Probe})
			if err != nil {
				return nil, err
			}
			if in.Contracts {
				admin.DescribeContracts(a.o.Reader, x, q.tenant, q.operator())
			}
			return &struct{ Body admin.Resolution }{*x}, nil
		})
	recorded := admin.NewDecisionReader(a.o.Reader)
	add(a, route{id: "search-decisions", method: http.MethodGet, path: "/v1/decisions", needs: switchboard.OfficeViewer, summary: "Recorded decisions on tasks, the newest first. A search that must look far says how far it has looked, and can be continued"},
		func(ctx context.Context, q asked, in *decisionQuery) (*struct{ Body admin.DecisionPage }, error) {
			page, err := recorded.Search(ctx, admin.ReceiptSearch{
				Query: receipt.Query{Tenant: q.tenant, Task: in.Task, Outcome: in.Outcome, Principal: in.Principal, Since: in.Since, Until: in.Until},
				Limit: in.Limit, After: in.After,
			}, in.Digest)
			if err != nil {
				return nil, err
			}
			return &struct{ Body admin.DecisionPage }{*page}, nil
		})
	add(a, route{id: "read-decision", method: http.MethodGet, path: "/v1/decisions/{node}/{entry}", needs: switchboard.OfficeViewer, summary: "One recorded decision, made again from its archive and explained, and also as it would have come out with a what-if. Its id, such as n1/5, is the end of the path"},
		func(ctx context.Context, q asked, in *decisionPath) (*struct{ Body admin.RecordedDecision }, error) {
			w := in.whatIf()
			d, err := recorded.Read(ctx, q.tenant, in.Node+"/"+in.Entry, q.operator(), &w)
			if err == nil && d == nil {
				err = notFound("there is no decision of that id that you may see")
			}
			if err != nil {
				return nil, err
			}
			return &struct{ Body admin.RecordedDecision }{*d}, nil
		})
}
