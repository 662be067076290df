package page

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// changesPath begins the address of a change.
const changesPath = "/configuration/changes/"

// A configurationView is what the template of the configuration gets.
type configurationView struct {
	At      time.Time
	Status  *admin.StatusReport
	Changes []change.Revision // the newest first
}

func askChanges(*viewQuery) string { return "/v1/configuration/changes" }

// loadConfiguration makes the view of the configuration: of one tenant, or of all that the officer sees.
func loadConfiguration(q *viewQuery, answer []byte) (any, error) {
	v := &configurationView{At: time.Now(), Status: &admin.StatusReport{}}
	if err := json.Unmarshal(answer, v); err != nil {
		return nil, err
	}
	if t := switchboard.TenantID(q.state.Get("tenant")); t != "" {
		v.Changes = slices.DeleteFunc(v.Changes, func(c change.Revision) bool { return c.Tenant != t })
	}
	return v, q.get(linkTo("/v1/status", nil, "tenant", q.state.Get("tenant")), v.Status)
}

// A changeView is what the template of one change gets.
type changeView struct {
	At time.Time
	change.Revision
	Diff string
}

func askChange(q *viewQuery) string {
	return q.fill("/v1/configuration/changes/{change}")
}

func loadChange(_ *viewQuery, answer []byte) (any, error) {
	v := &changeView{At: time.Now()}
	return v, json.Unmarshal(answer, v)
}

// revertForms are what a person does with a change.
var revertForms = map[string]viewForm{"revert": revertChange}

// revertChange restores what the file was before the change, and leads to the change that does so.
func revertChange(q *viewQuery, fields url.Values) (formDone, error) {
	var made struct{ Change change.Revision }
	err := q.send(http.MethodPost, q.fill("/v1/configuration/changes/{change}/revert"), map[string]string{"reason": strings.TrimSpace(fields.Get("reason"))}, &made)
	if err != nil {
		return formDone{}, err
	}
	return formDone{Next: linkTo(changesPath+url.PathEscape(made.Change.ID), nil, "tenant", q.state.Get("tenant"))}, nil
}
