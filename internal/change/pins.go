package change

import (
	"bytes"
	"context"
	"errors"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// EditPins makes a change of admitted.lock; see EditText and lockfile.SetAdmitted.
func EditPins(ctx context.Context, e *Editor, by switchboard.Officer, reason string, next func(text []byte) ([]byte, error)) (*Revision, error) {
	return EditText(ctx, e, by, config.AdmittedFile, reason, next)
}

// EditText makes a change of a file, as Apply does, and returns it when it is in force here. next gets the present text, nil if there is no file, and
// returns the new one. It must look in that text whether the change is still the one that the officer has decided about: if somebody
// else changes the file meanwhile, next gets the text that they wrote. An error of next is returned as it is. The Revision is nil if next changes nothing.
func EditText(ctx context.Context, e *Editor, by switchboard.Officer, name, reason string, next func(text []byte) ([]byte, error)) (*Revision, error) {
	for attempt := 0; ; attempt++ {
		old, err := e.Read(&by, name)
		if err != nil {
			return nil, err
		}
		text, err := next(old)
		if err != nil || bytes.Equal(text, old) {
			return nil, err
		}
		w := Wish{FileWish: FileWish{Path: name, Text: text}, By: by, Reason: reason}
		if old != nil {
			w.IfMatch = ETagOf(old)
		}
		c, err := e.Apply(ctx, w)
		if refused, ok := errors.AsType[*switchboard.Error](err); ok && refused.Code == switchboard.CodeChangedMeanwhile && attempt < maxConflicts && ctx.Err() == nil {
			continue
		}
		return c, err
	}
}
