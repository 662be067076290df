package app

import (
	"context"
	"log/slog"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The limits of what the log says of the tools that one change of the catalog brings. The rest is counted.
const (
	maxLoggedDefinitions = 20
	maxLoggedMember      = 60 // bytes of a name that a server has chosen
)

// logAdmissions logs each tool whose state is another one than before: its server offers another definition, or the admitted one again, or a person has
// decided. was returns a tool as it was.
func logAdmissions(ctx context.Context, log *slog.Logger, was func(switchboard.ToolID) (*switchboard.Tool, bool), now []*switchboard.Tool) {
	logged, more := 0, 0
	for _, t := range now {
		var before switchboard.Admission
		if old, known := was(t.ID); known && old.Admission != nil {
			before = *old.Admission
		}
		present := switchboard.Admission{}
		if t.Admission != nil {
			present = *t.Admission
		}
		if t.Provides != nil || present == before {
			continue
		}
		if logged == maxLoggedDefinitions {
			more++
			continue
		}
		logged++
		if t.Admission == nil {
			log.Info("a tool is active again, with the admitted definition", "server", t.ID.Server, "tool", cutName(t.ID.Name))
			continue
		}
		level := slog.LevelInfo
		if present.State != switchboard.LifeActive && present.State != switchboard.LifeDeprecated {
			level = slog.LevelWarn
		}
		log.Log(ctx, level, "the state of a tool has changed", "server", t.ID.Server, "tool", cutName(t.ID.Name), "state", present.State, "frozen", present.Frozen, "why", scan.Spell(present.Why))
	}
	if more > 0 {
		log.Warn("the states of more tools have changed", "tools", more)
	}
}
