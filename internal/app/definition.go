package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The limits of what the log says of the definitions that one change of the catalog brings. The rest is counted.
const (
	maxLoggedDefinitions = 20
	maxLoggedMembers     = 10 // of one definition
	maxLoggedMember      = 60 // bytes of the name of one
	definitionLogTime    = time.Second
)

// logDefinitions logs each of the tools whose definition its server has changed, with the class of the change. was returns a tool as it was. Clients get the new
// definition. It begins no comparison after definitionLogTime.
func logDefinitions(ctx context.Context, log *slog.Logger, was func(switchboard.ToolID) (*switchboard.Tool, bool), now []*switchboard.Tool) {
	began, logged, more := time.Now(), 0, 0
	for _, t := range now {
		old, known := was(t.ID)
		if !known || old.Digest == t.Digest {
			continue
		}
		if logged == maxLoggedDefinitions || time.Since(began) > definitionLogTime {
			more++
			continue
		}
		class, all := admission.CompareTools(old.Definition, t.Definition)
		if class == admission.Same {
			continue
		}
		logged++
		level := slog.LevelInfo
		if class >= admission.Narrower {
			level = slog.LevelWarn
		}
		log.Log(ctx, level, "a server has changed the definition of a tool", "server", t.ID.Server, "tool", t.ID.Name, "class", class, "differs", namesOf(all))
	}
	if more > 0 {
		log.Warn("servers have changed the definitions of more tools", "tools", more)
	}
}

// namesOf returns the members that differ, as far as the log has room. The server has chosen the names of some.
func namesOf(all []admission.Difference) (names []string) {
	for i, d := range all {
		if i == maxLoggedMembers {
			return append(names, "…")
		}
		name := d.Member
		if len(name) > maxLoggedMember {
			name = name[:maxLoggedMember] + "…"
		}
		names = append(names, name)
	}
	return names
}
