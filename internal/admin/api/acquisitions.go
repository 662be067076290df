package api

import (
	"context"
	"net/http"
	"time"

	"github.com/summit-switchboard/switchboard/internal/acquire"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// acquisitionRoutes are the routes about dossiers.
type acquisitionRoutes struct{ *API }

type acquisitionList struct {
	Body struct {
		Dossiers []*acquire.Dossier `json:"dossiers" doc:"The newest first. They are kept for 90 days."`
		Next     string             `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

// A DossierPath names a dossier.
type DossierPath struct {
	Dossier string `path:"dossier" maxLength:"20" doc:"The id of the dossier, as in the list of acquisitions." example:"k3fqx2mz7a"`
}

// A dossierView is a dossier as a person reads it before deciding.
type dossierView struct {
	*acquire.Dossier
	Text string `json:"text" doc:"All of this as lines of text. Words of others look like words of others."`
}

type dossierAnswer struct{ Body dossierView }

type dossierStart struct {
	Body struct {
		Tenant     switchboard.TenantID `json:"tenant" minLength:"1" maxLength:"64" doc:"Who lacks the capability."`
		Capability string               `json:"capability" minLength:"1" maxLength:"256" doc:"A verb and a resource, such as: search internet."`
		Reason     string               `json:"reason,omitempty" maxLength:"2000" doc:"Why, for the person who decides."`
		Server     string               `json:"server,omitempty" maxLength:"200" doc:"The one server of a registry to try, by its name there. Absent: the likeliest."`
	}
}

type dossierReview struct {
	DossierPath
	Body struct {
		acquire.PersonReview
		For string `json:"for,omitempty" maxLength:"20" doc:"How long a yes to the capability is good, such as 8h (the default); 720h at most."`
	}
}

func (a acquisitionRoutes) answer(d *acquire.Dossier, err error) (*dossierAnswer, error) {
	if err != nil {
		return nil, changed(err)
	}
	return &dossierAnswer{dossierView{d.Public(), d.Text(time.Now())}}, nil
}

// add adds the routes.
func (a acquisitionRoutes) add() {
	conflict := []int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity}
	add(a.API, route{id: "list-acquisitions", method: http.MethodGet, path: "/v1/acquisitions", needs: anyOffice, summary: "The dossiers: what was looked for because nothing here gave it, and how far each is; the newest first"},
		func(ctx context.Context, q asked, in *PageQuery) (*acquisitionList, error) {
			all, err := a.o.People.Acquisitions.List(ctx, q.officer)
			if err != nil {
				return nil, err
			}
			out := &acquisitionList{}
			out.Body.Dossiers, out.Body.Next = cut(*in, all, (*acquire.Dossier).Place)
			for i, d := range out.Body.Dossiers {
				out.Body.Dossiers[i] = d.Public()
			}
			return out, nil
		})
	add(a.API, route{id: "start-acquisition", method: http.MethodPost, path: "/v1/acquisitions", needs: switchboard.OfficeOperator, status: http.StatusCreated, errors: conflict, summary: "Have a capability looked for that nothing here gives. Nothing of what is found is in force before a person's yes"},
		func(ctx context.Context, q asked, in *dossierStart) (*dossierAnswer, error) {
			b := &in.Body
			return a.answer(a.o.People.Acquisitions.AskFor(ctx, q.officer, b.Tenant, b.Capability, b.Reason, b.Server))
		})
	add(a.API, route{id: "read-acquisition", method: http.MethodGet, path: "/v1/acquisitions/{dossier}", needs: anyOffice, summary: "One dossier: what was found, what was seen of it in walls, and which gate it has passed"},
		func(ctx context.Context, q asked, in *DossierPath) (*dossierAnswer, error) {
			return a.answer(a.o.People.Acquisitions.Show(ctx, q.officer, in.Dossier))
		})
	add(a.API, route{id: "review-acquisition", method: http.MethodPost, path: "/v1/acquisitions/{dossier}/review", needs: anyOffice, errors: conflict, summary: "Say yes, no, or changes with a note, to a dossier that waits. The last yes that is needed puts the server in force, and gives the capability to who asked"},
		func(ctx context.Context, q asked, in *dossierReview) (*dossierAnswer, error) {
			r := in.Body.PersonReview
			if in.Body.For != "" {
				d, err := time.ParseDuration(in.Body.For)
				if err != nil || d <= 0 {
					return nil, changed(switchboard.Refuse(switchboard.CodeBadArguments, "for is a time such as 8h"))
				}
				r.For = d
			}
			return a.answer(a.o.People.Acquisitions.Review(ctx, q.officer, in.Dossier, &r))
		})
}
