package app

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A server that changes all its definitions at once does not fill the log.
func TestTheLogOfChangedStatesIsBounded(t *testing.T) {
	var said strings.Builder
	tool := func(i int, a *switchboard.Admission) *switchboard.Tool {
		return &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: fmt.Sprint("t", i)}, ToolStanding: switchboard.ToolStanding{Admission: a}}
	}
	var now []*switchboard.Tool
	for i := range 30 {
		now = append(now, tool(i, &switchboard.Admission{State: switchboard.LifeSuspended, Why: "a\u202eb"}))
	}
	was := func(id switchboard.ToolID) (*switchboard.Tool, bool) {
		if id.Name == "t0" {
			return tool(0, now[0].Admission), true // it has not changed
		}
		return tool(0, nil), id.Name != "t1" // which is new
	}
	logAdmissions(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), was, now)
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != maxLoggedDefinitions+1 || !strings.Contains(lines[maxLoggedDefinitions], "tools=9") {
		t.Errorf("%d lines:\n%s", len(lines), said.String())
	}
	if first := lines[0]; !strings.Contains(first, `level=WARN msg="the state of a tool has changed" server=a tool=t1 state=suspended frozen=false why=a\u{202e}b`) {
		t.Errorf("the first line is %s", first)
	}
}

func TestTheLogSaysThatAToolIsActiveAgain(t *testing.T) {
	var said strings.Builder
	id := switchboard.ToolID{Server: "a", Name: "x"}
	was := func(switchboard.ToolID) (*switchboard.Tool, bool) {
		return &switchboard.Tool{ID: id, ToolStanding: switchboard.ToolStanding{Admission: &switchboard.Admission{State: switchboard.LifeSuspended}}}, true
	}
	logAdmissions(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), was, []*switchboard.Tool{{ID: id}})
	if !strings.Contains(said.String(), `msg="a tool is active again, with the admitted definition" server=a tool=x`) {
		t.Errorf("the log says %s", said.String())
	}
}
