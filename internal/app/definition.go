package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The limits of what one change of a catalog says of its definitions. No state waits longer for the log.
const (
	maxLoggedDefinitions = 20
	definitionLogTime    = 50 * time.Millisecond
)

// logDefinitions logs each of the tools whose definition its server has changed, with the class of the change. was returns a tool as it was. Clients get the new
// definition.
func logDefinitions(ctx context.Context, log *slog.Logger, was func(switchboard.ToolID) (*switchboard.Tool, bool), now []*switchboard.Tool) {
	began, more := time.Now(), 0
	for _, t := range now {
		old, known := was(t.ID)
		if !known || old.Digest == t.Digest {
			continue
		}
		if more > 0 || time.Since(began) > definitionLogTime {
			more++
			continue
		}
		class, all := admission.CompareTools(old.Definition, t.Definition)
		if class == admission.Same {
			continue
		}
		level, differs := slog.LevelInfo, make([]string, len(all))
		if class >= admission.Narrower {
			level = slog.LevelWarn
		}
		for i, d := range all {
			differs[i] = d.Member
		}
		log.Log(ctx, level, "a server has changed the definition of a tool", "server", t.ID.Server, "tool", t.ID.Name, "class", class, "differs", differs)
	}
	if more > 0 {
		log.Warn("servers have changed the definitions of more tools", "tools", more)
	}
}
