package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin/pins"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type pinList struct {
	Body struct {
		Pins []pins.PinRow `json:"pins" doc:"Those that need a person first, and then by server, kind and name."`
		Next string        `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`

		Total       int `json:"total" doc:"How many definitions fit, in all parts of the list."`
		NeedsPerson int `json:"needs_person" doc:"How many of them need a person."`
	}
}

type pinListRequest struct {
	PageQuery
	Server  switchboard.ServerID `query:"server" maxLength:"64" doc:"Only those of this server."`
	Kind    switchboard.PinKind  `query:"kind" enum:"tool,prompt,template,instructions,handshake" doc:"Only those of this kind."`
	State   string               `query:"state" enum:"testing,active,deprecated,retired,suspended,new,frozen" doc:"Only those in this state. frozen: the server offers another definition, and the admitted one stays in use."`
	Changed bool                 `query:"changed" doc:"Only those that are not plainly active: frozen, suspended, new, on trial, retired, deprecated, or gone."`
}

// A PinQuery names one definition.
type PinQuery struct {
	Server switchboard.ServerID `query:"server" required:"true" minLength:"1" maxLength:"64" doc:"The server that offers it."`
	Kind   switchboard.PinKind  `query:"kind" enum:"tool,prompt,template,instructions,handshake" default:"tool" doc:"What it is."`
	Name   string               `query:"name" maxLength:"4096" doc:"The name of the tool or prompt, or the URI template; absent for instructions and handshake."`
}

func (q *PinQuery) id() switchboard.PinID {
	return switchboard.PinID{Server: q.Server, Kind: q.Kind, Name: q.Name}
}

type pinAnswer struct{ Body *pins.PinDetail }

type pinDecisionRequest struct {
	PinQuery
	Body struct {
		Digest    string `json:"digest,omitempty" maxLength:"1200" doc:"To accept: the digest of the definition that you have looked at, offered or else digest of read-pin."`
		Successor string `json:"successor,omitempty" maxLength:"200" doc:"To deprecate: the tool that takes its place, SERVER/TOOL."`
		Reason    string `json:"reason,omitempty" maxLength:"500" doc:"Why; for the receipt, and the history of admitted.lock."`
	}
}

// pinDecisions are the routes that decide about a definition.
var pinDecisions = []struct {
	id, path string
	to       switchboard.LifeState
	summary  string
}{
	{"accept-pin", "/v1/pins/accept", switchboard.LifeActive, "Let in the definition with this digest. SB-CONF-002 if the server offers another one by now"},
	{"suspend-pin", "/v1/pins/suspend", switchboard.LifeSuspended, "Take a definition out, at every replica, until a person accepts it"},
	{"retire-pin", "/v1/pins/retire", switchboard.LifeRetired, "Take a definition out for good: it cannot come back as new"},
	{"deprecate-pin", "/v1/pins/deprecate", switchboard.LifeDeprecated, "Name the successor of a tool, which stays in use"},
}

// pinRoutes are the routes about pins.
type pinRoutes struct{ *API }

func (p pinRoutes) add() {
	a := p.API
	add(a, route{id: "list-pins", method: http.MethodGet, path: "/v1/pins", needs: switchboard.OfficeOperator, summary: "The definitions that servers offer, with their states"},
		func(_ context.Context, _ asked, in *pinListRequest) (*pinList, error) {
			out := &pinList{}
			r := a.o.People.Pins
			list := r.List(pins.PinFilter{Server: in.Server, Kind: in.Kind, State: in.State, Changed: in.Changed})
			out.Body.Total, out.Body.NeedsPerson = len(list.Pins), list.NeedsPerson
			part, next := cut(in.PageQuery, list.After(in.After), pins.PlaceOf)
			out.Body.Pins, out.Body.Next = make([]pins.PinRow, len(part)), next
			for i, p := range part {
				out.Body.Pins[i] = r.Row(p)
			}
			return out, nil
		})
	add(a, route{id: "read-pin", method: http.MethodGet, path: "/v1/pins/one", needs: switchboard.OfficeOperator, summary: "One definition: what is let in, and what its server offers in its place"},
		func(_ context.Context, _ asked, in *PinQuery) (*pinAnswer, error) {
			d, err := a.o.People.Pins.Detail(in.id())
			return &pinAnswer{d}, knownPin(err)
		})
	for _, d := range pinDecisions {
		add(a, route{id: d.id, method: http.MethodPost, path: d.path, needs: switchboard.OfficeOperator, errors: []int{http.StatusPreconditionFailed}, summary: d.summary},
			func(ctx context.Context, q asked, in *pinDecisionRequest) (*pinAnswer, error) {
				now, err := a.o.People.Pins.Decide(ctx, pins.PinDecision{ID: in.id(), To: d.to, By: *q.officer, Why: in.Body.Reason, Digest: in.Body.Digest, Successor: in.Body.Successor})
				return &pinAnswer{now}, knownPin(err)
			})
	}
}

// knownPin returns an error of the Registrar as an answer: 404 if no server offers such a definition.
func knownPin(err error) error {
	if errors.Is(err, pins.ErrUnknown) {
		return notFound(access.AsError(err).Text)
	}
	return err
}
