package vault

import (
	"context"
	"errors"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/store"
)

const (
	// maxWanted is the most scopes that are kept as wanted. A server that demands others each time must not write the store each time.
	maxWanted = 64

	// wantTries is how often the row is read again because another program has changed it meanwhile.
	wantTries = 4
)

// Want records, durably, that the server has demanded scopes that the connection's consent does not have, so that the next consent asks for
// them. The connection stays as it is. The errors are those of Read, ErrPaused while the connection is being renewed, and ErrFull.
func (v *Vault) Want(ctx context.Context, o Owner, scopes []string) error {
	s := v.slots.add(o)
	for try := 1; ; try++ {
		r, version, err := v.rows.read(ctx, s)
		if err != nil {
			return err
		}
		wanted := slices.Clone(r.Consent.Wanted)
		for _, scope := range scopes {
			if !slices.Contains(wanted, scope) {
				wanted = append(wanted, scope)
			}
		}
		switch {
		case len(wanted) == len(r.Consent.Wanted):
			return nil
		case len(wanted) > maxWanted:
			return ErrFull
		case r.unwritten || r.State == stateAsking: // a renewal writes the row
			return ErrPaused
		}
		err = v.rows.write(ctx, s, version, r, func(r *connectionRow) { r.Consent.Wanted = wanted })
		if err == nil || !errors.Is(err, store.ErrConflict) || try == wantTries {
			return err
		}
	}
}
