package api

import (
	"context"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type blockList struct {
	Body struct {
		Blocks []admin.BlockRow `json:"blocks" doc:"Sorted by issuer and subject."`
		Next   string           `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

type blockRequest struct {
	Body struct {
		Issuer  string `json:"issuer" minLength:"1" maxLength:"64" doc:"The id of the issuer in the configuration."`
		Subject string `json:"subject" minLength:"1" maxLength:"255" doc:"The claim sub of the person, as the list of sessions and receipts show it behind the issuer."`
		Reason  string `json:"reason,omitempty" maxLength:"500"`
	}
}

// addBlocks adds the routes about blocked persons.
func (a personRoutes) addBlocks() {
	add(a.API, route{id: "list-blocks", method: http.MethodGet, path: "/v1/blocks", needs: switchboard.OfficeOperator, summary: "The persons who are blocked"},
		func(_ context.Context, _ asked, in *struct{ PageQuery }) (*blockList, error) {
			out := &blockList{}
			out.Body.Blocks, out.Body.Next = cut(in.PageQuery, a.o.Actions.Blocks(), func(r admin.BlockRow) string { return r.Issuer + "/" + r.Subject })
			return out, nil
		})
	add(a.API, route{id: "block-person", method: http.MethodPost, path: "/v1/blocks", needs: switchboard.OfficeOperator, summary: "Block a person who signs in at an issuer, at every replica. Sessions and streams of the person end"},
		func(_ context.Context, q asked, in *blockRequest) (*struct{ Body admin.BlockRow }, error) {
			row, err := a.o.Actions.Block(*q.officer, in.Body.Issuer, in.Body.Subject, in.Body.Reason)
			if err != nil {
				return nil, err
			}
			return &struct{ Body admin.BlockRow }{*row}, nil
		})
	add(a.API, route{id: "unblock-person", method: http.MethodPost, path: "/v1/blocks/lift", needs: switchboard.OfficeOperator, status: http.StatusNoContent, summary: "Lift the block of a person, at every replica"},
		func(_ context.Context, q asked, in *blockRequest) (*struct{}, error) {
			return nil, a.o.Actions.Unblock(*q.officer, in.Body.Issuer, in.Body.Subject, in.Body.Reason)
		})
}
