package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type serverPath struct {
	TenantQuery
	Server switchboard.ServerID `path:"server" maxLength:"64" doc:"The id of the server."`
}

type serverList struct {
	Body struct {
		Servers []admin.ServerStatus `json:"servers" doc:"Sorted by id."`
		Next    string               `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

type operateRequest struct {
	Server switchboard.ServerID `path:"server" maxLength:"64" doc:"The id of the server."`
	Body   *struct {
		Reason string `json:"reason,omitempty" maxLength:"500" doc:"Shown by status, and never to agents."`
	}
}

// PageQuery asks for a part of a list.
type PageQuery struct {
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"The most entries of the answer."`
	After string `query:"after" maxLength:"512" doc:"Begin behind this entry: next of the answer before."`
}

// cut returns the part of the list that the query asks for, and what to ask next. key returns the place of an entry in the list,
// which is sorted by it.
func cut[E any](q PageQuery, list []E, key func(E) string) (part []E, next string) {
	first := slices.IndexFunc(list, func(e E) bool { return key(e) > q.After })
	if first < 0 {
		return []E{}, ""
	}
	part = list[first:]
	if len(part) > q.Limit {
		part = part[:q.Limit]
		next = key(part[q.Limit-1])
	}
	return part, next
}

// addServers adds the routes about servers, and about the tools that they offer.
func (a *API) addServers() {
	add(a, route{id: "list-servers", method: http.MethodGet, path: "/v1/servers", needs: switchboard.OfficeViewer, summary: "The servers and their states"},
		func(_ context.Context, q asked, in *struct {
			TenantQuery
			PageQuery
		},
		) (*serverList, error) {
			out := &serverList{}
			out.Body.Servers, out.Body.Next = cut(in.PageQuery, a.o.Reader.Servers(q.tenant, q.operator()), func(s admin.ServerStatus) string { return string(s.ID) })
			return out, nil
		})
	add(a, route{id: "read-server", method: http.MethodGet, path: "/v1/servers/{server}", needs: switchboard.OfficeViewer, summary: "One server: its state and the last changes of it, who may use it, and what runs would do without it"},
		func(ctx context.Context, q asked, in *serverPath) (*struct{ Body admin.ServerReport }, error) {
			if x := admin.ReportServer(ctx, a.o.Reader, q.tenant, in.Server, q.operator()); x != nil {
				return &struct{ Body admin.ServerReport }{*x}, nil
			}
			return nil, switchboard.Refuse(switchboard.CodeServerUnknown, "there is no server %.64q here", in.Server)
		})
	for _, what := range admin.Operations() {
		add(a, route{id: what + "-server", method: http.MethodPost, path: "/v1/servers/{server}/" + what, needs: switchboard.OfficeOperator, summary: operationSummaries[what]},
			func(_ context.Context, q asked, in *operateRequest) (*struct{ Body admin.OperationResult }, error) {
				reason := ""
				if in.Body != nil {
					reason = in.Body.Reason
				}
				done, err := a.o.Actions.Operate(*q.officer, in.Server, what, reason)
				if err != nil {
					return nil, err
				}
				return &struct{ Body admin.OperationResult }{*done}, nil
			})
	}
	add(a, route{id: "list-tools", method: http.MethodGet, path: "/v1/tools", needs: switchboard.OfficeOperator, summary: "The tools that servers offer, with their labels, whether or not a task finds them"},
		func(_ context.Context, _ asked, in *struct {
			PageQuery
			Server switchboard.ServerID `query:"server" maxLength:"64" doc:"Only the tools of this server."`
		},
		) (*struct{ Body admin.OfferList }, error) {
			list := a.o.Reader.ListOffered(in.Server)
			// A space comes before all characters of a server's id, so this is the order of the list.
			list.Tools, list.Next = cut(in.PageQuery, list.Tools, func(t admin.OfferedTool) string { return string(t.Server) + " " + t.Tool })
			return &struct{ Body admin.OfferList }{*list}, nil
		})
	add(a, route{id: "search-tools", method: http.MethodGet, path: "/v1/search", needs: switchboard.OfficeOperator, summary: "The tools of all servers that fit a query, best first"},
		func(_ context.Context, _ asked, in *struct {
			Query string `query:"query" required:"true" maxLength:"1000" doc:"Words of the name or of the description." example:"search the web"`
		},
		) (*struct{ Body admin.SearchResult }, error) {
			return &struct{ Body admin.SearchResult }{*a.o.Reader.Search(in.Query)}, nil
		})
}

var operationSummaries = map[string]string{
	"disable": "Take a server out of service until it is enabled, at all replicas and across restarts",
	"enable":  "Put a disabled server into service again",
	"probe":   "Send the server a request without side effects now; if that fails, the server is quarantined",
	"restart": "End the server's processes and sessions, and start new ones",
}
