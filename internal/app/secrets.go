package app

import (
	"context"
	"time"
)

// secretLook is how often Switchboard looks whether a command that prints a secret is due. It is less than the shortest "every".
const secretLook = time.Second

// rereadSecrets runs the commands that print secrets again, each as often as its row says, until ctx is done. It reloads the configuration if one
// has printed something else. If a command fails, its last secret stays in use, and a warning says so once.
func rereadSecrets(ctx context.Context, a *App) {
	look := time.NewTicker(secretLook)
	defer look.Stop()
	read := map[string]time.Time{} // by name
	failed := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		differs := false
		now := time.Now()
		for name, s := range a.state.Load().config.Secrets {
			last, ok := read[name]
			switch {
			case s.Every == 0 || s.Value.Reveal() == "":
				continue
			case !ok:
				read[name] = now
				continue
			case now.Sub(last) < s.Every:
				continue
			}
			value, err := s.Read(ctx)
			read[name] = time.Now()
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !failed[name] {
					a.log.Warn("a secret cannot be read again; the last one stays in use", "secret", name, "error", err, "every", s.Every)
				}
				failed[name] = true
				continue
			case failed[name]:
				a.log.Info("the secret can be read again", "secret", name)
			}
			delete(failed, name)
			differs = differs || value.Reveal() != s.Value.Reveal()
		}
		if differs {
			a.reload(ctx, func() {}) // other replicas run the command themselves
		}
	}
}
