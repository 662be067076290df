package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/page"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A SessionRow is a session in a list.
type SessionRow struct {
	ID      string           `json:"id" doc:"Names the session in this API; it signs nobody in."`
	Officer string           `json:"officer" doc:"Who has signed in: local, ISSUER/SUBJECT, or the beginning of a key's hash."`
	By      switchboard.Auth `json:"by" doc:"How: at an OpenID provider, with a person's key, or from the data folder."`
	Began   time.Time        `json:"began"`
	Used    time.Time        `json:"used" doc:"The last use, to a minute."`
	Ends    time.Time        `json:"ends" doc:"When it ends if it is not used any more."`
}

func newSessionRow(s *signin.ListedSession) SessionRow {
	row := SessionRow{ID: s.ID, Officer: switchboard.LocalID, By: switchboard.AuthDataFolder, Began: s.Began, Used: s.Used, Ends: s.Ends()}
	switch {
	case s.Person != nil:
		row.Officer, row.By = s.Person.ID(), switchboard.AuthSignIn
	case s.Key != "":
		row.Officer, row.By = fmt.Sprintf("%.12s", s.Key), switchboard.AuthPersonKey
	}
	return row
}

type sessionQuery struct {
	Session string `path:"session" pattern:"^[0-9a-f]{16}$" doc:"The id of a session in the list."`
}

type sessionList struct {
	Body struct {
		Sessions []SessionRow `json:"sessions" doc:"Sorted by their begin."`
		Next     string       `json:"next,omitempty" doc:"Ask again with after=NEXT for the rest."`
	}
}

type pageCode struct {
	Body struct {
		Path string `json:"path" doc:"Where to go with a browser at the admin address, once, within a minute."`
	}
}

// personRoutes are the routes about people who use the page.
type personRoutes struct{ *API }

// addSessions adds the routes about sessions.
func (a personRoutes) addSessions() {
	add(a.API, route{id: "list-sessions", method: http.MethodGet, path: "/v1/sessions", needs: switchboard.OfficeOperator, summary: "Who is signed in"},
		func(ctx context.Context, _ asked, in *struct{ PageQuery }) (*sessionList, error) {
			all, err := a.o.People.Sessions.List(ctx)
			if err != nil {
				return nil, err
			}
			rows := make([]SessionRow, len(all))
			for i := range all {
				rows[i] = newSessionRow(&all[i])
			}
			out := &sessionList{}
			out.Body.Sessions, out.Body.Next = cut(in.PageQuery, rows, func(r SessionRow) string { return r.Began.UTC().Format(time.RFC3339) + " " + r.ID })
			return out, nil
		})
	add(a.API, route{id: "end-session", method: http.MethodDelete, path: "/v1/sessions/{session}", needs: switchboard.OfficeOperator, status: http.StatusNoContent, summary: "End a session, at every replica"},
		func(_ context.Context, q asked, in *sessionQuery) (*struct{}, error) {
			ended, err := a.o.Actions.EndSession(*q.officer, in.Session, func(ctx context.Context) (bool, error) { return a.o.People.Sessions.End(ctx, in.Session) })
			switch {
			case err != nil:
				return nil, err
			case !ended:
				return nil, notFound("there is no such session; it may have ended")
			}
			a.o.Log.Info("operator", "did", "end session", "session", in.Session, "by", q.officer.ID)
			return nil, nil
		})
	add(a.API, route{id: "make-page-code", method: http.MethodPost, path: "/v1/page-codes", needs: anyOffice, status: http.StatusCreated, secret: true, summary: "Make a code with which a browser signs in as the officer who asks"},
		func(ctx context.Context, q asked, in *struct {
			Authorization string `header:"Authorization" hidden:"true"`
		},
		) (*pageCode, error) {
			h := signin.Holder{Local: true}
			switch key := strings.TrimPrefix(in.Authorization, "Bearer "); q.officer.Auth {
			case switchboard.AuthDataFolder:
			case switchboard.AuthPersonKey:
				sum := sha256.Sum256([]byte(key))
				h = signin.Holder{Key: hex.EncodeToString(sum[:])}
			default:
				return nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "a code is for who has a person's key or can read the data folder; whoever has signed in at an issuer signs in there")
			}
			code, err := a.o.People.Sessions.NewCode(ctx, h)
			if err != nil {
				return nil, err
			}
			out := &pageCode{}
			out.Body.Path = page.CodePath + "?code=" + code
			return out, nil
		})
}
