package api

import (
	"context"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type revokeRequest struct {
	Tenant switchboard.TenantID `query:"tenant" maxLength:"64" doc:"The tenant of the key. Without it: any key for an operator, the only tenant of any other officer."`
	Key    string               `path:"key" minLength:"12" maxLength:"12" pattern:"^[0-9a-f]{12}$" doc:"The first digits of the key's hash, as in the list of keys." example:"0a1b2c3d4e5f"`
	Body   *struct {
		Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why; for the receipt and the row."`
	}
}

type keyList struct {
	Body struct {
		Keys []admin.KeyRow `json:"keys" doc:"Those of agents first; sorted by tenant and id."`
		Next string         `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

// addKeys adds the routes about keys.
func (a *API) addKeys() {
	add(a, route{id: "list-keys", method: http.MethodGet, path: "/v1/keys", needs: switchboard.OfficeViewer, summary: "The rows of keys, of agents and of persons, without the keys"},
		func(_ context.Context, q asked, in *struct {
			TenantQuery
			PageQuery
		},
		) (*keyList, error) {
			out := &keyList{}
			out.Body.Keys, out.Body.Next = cut(in.PageQuery, a.o.Actions.Keys(q.tenant), func(r admin.KeyRow) string { return r.Place() })
			return out, nil
		})
	add(a, route{id: "revoke-key", method: http.MethodPost, path: "/v1/keys/{key}/revoke", needs: switchboard.OfficeAdmin, summary: "Revoke a key, at every replica and for good"},
		func(_ context.Context, q asked, in *revokeRequest) (*struct{ Body admin.KeyRow }, error) {
			reason := ""
			if in.Body != nil {
				reason = in.Body.Reason
			}
			row, err := a.o.Actions.RevokeKey(*q.officer, q.tenant, in.Key, reason)
			if err != nil {
				return nil, err
			}
			return &struct{ Body admin.KeyRow }{*row}, nil
		})
}
