package gateway

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// serveRuns mints a run of the task.
func serveRuns(x *exchange) {
	if x.r.ContentLength != 0 {
		if why := access.NotJSON(x.w, x.r); why != "" {
			http.Error(x.w, why+"; or send no body", http.StatusUnsupportedMediaType)
			return
		}
	}
	x.memory = x.g.accounts.newHold(x.principal)
	defer x.memory.release()
	if _, ok := x.readBody(); !ok {
		return
	}
	minted, err := x.g.dispatcher.finder.openRun(x.r.Context(), x.principal, x.target)
	if err != nil {
		var e *switchboard.Error
		if !errors.As(err, &e) {
			x.g.log.Error("cannot open a run", "task", x.target.task, "err", err)
			e = switchboard.Refuse(switchboard.CodeTaskRefused, "%s", internalFailure.message)
		}
		x.g.log.Info("refused", "code", e.Code, "task", x.target.task, "tenant", x.principal.Tenant, "principal", x.principal.ID, "err", e)
		x.refuseWith(access.HTTPStatus(e.Code), e)
		return
	}
	path := "/mcp/runs/" + string(minted.ID())
	body, _ := json.Marshal(struct {
		Run  switchboard.RunID  `json:"run"`
		Task switchboard.TaskID `json:"task"`
		Path string             `json:"path"`
	}{minted.ID(), minted.Task(), path})
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Location", path)
	writeAll(x.w, http.StatusCreated, body)
}
