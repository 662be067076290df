package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An operatorExchange is an exchange at an endpoint other than MCP.
type operatorExchange struct{ *exchange }

// serveMetrics answers GET /metrics.
func (x operatorExchange) serveMetrics() {
	kind, text, err := x.g.operators.Metrics(x.principal, x.r.Header)
	if err != nil {
		x.g.log.Error("metrics", "err", err)
		http.Error(x.w, internalFailure.message, http.StatusInternalServerError)
		return
	}
	x.w.Header().Set("Content-Type", kind)
	writeAll(x.w, http.StatusOK, text)
}

// maxReason is the maximum length of an operator's reason, in bytes.
const maxReason = 500

// serveOperate disables, enables or restarts a server. It demands a JSON content type even for an
// empty body, because a page of another origin cannot send one without a preflight request.
func (x operatorExchange) serveOperate() {
	bad := func(status int, why string) {
		x.refuseWith(status, &switchboard.Error{Text: why})
	}
	if why := notJSON(x.w, x.r); why != "" {
		bad(http.StatusUnsupportedMediaType, why)
		return
	}
	x.memory = x.g.accounts.newHold(x.principal)
	defer x.memory.release()
	body, ok := x.readBody()
	if !ok {
		return
	}
	var wish struct {
		Reason string `json:"reason"`
	}
	if len(body) > 0 {
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&wish); err != nil || dec.More() || len(wish.Reason) > maxReason {
			bad(http.StatusBadRequest, fmt.Sprintf("the body must be empty, or an object with no member but reason, a string of at most %d bytes", maxReason))
			return
		}
	}
	id, what, _ := strings.Cut(strings.TrimPrefix(x.r.URL.EscapedPath(), "/v1/servers/"), "/")
	text, err := x.g.operators.Operate(x.principal, x.r.Header, switchboard.ServerID(id), what, wish.Reason)
	x.answer(text, err)
}

// serveRead answers one of the operators' reads.
func (x operatorExchange) serveRead() {
	text, err := x.g.operators.Read(x.r.URL.EscapedPath())(x.r.Context(), x.principal, x.r.URL.Query())
	x.answer(text, err)
}

// answer answers with JSON, or with problem details if err is set.
func (x operatorExchange) answer(text []byte, err error) {
	if err != nil {
		e, ok := errors.AsType[*switchboard.Error](err)
		if !ok {
			x.g.log.Error("not answered", "path", x.r.URL.Path, "err", err)
			e = switchboard.Refuse(switchboard.CodeTaskRefused, "this could not be answered; the log output of Switchboard says why")
		}
		x.refuseWith(httpStatus(e.Code), e)
		return
	}
	x.w.Header().Set("Content-Type", "application/json")
	writeAll(x.w, http.StatusOK, text)
}

// serveRuns mints a run of the task.
func (x operatorExchange) serveRuns() {
	if x.r.ContentLength != 0 {
		if why := notJSON(x.w, x.r); why != "" {
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
		x.refuseWith(httpStatus(e.Code), e)
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
