package edit

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// File changes a configuration's file by change, as rewrite.File does; a new file is for its owner only. It writes nothing
// if the configuration would have a fault that it does not have now; then the error is a *Refused. opts say how the configuration is read; opts.Text is ignored.
func File(ctx context.Context, file string, opts config.Options, change func(text []byte) ([]byte, error)) error {
	return rewrite.File(ctx, file, 0o600, func(old []byte) ([]byte, error) {
		next, err := change(old)
		if err != nil || string(next) == string(old) {
			return next, err
		}
		return next, Check(ctx, file, opts, old, next)
	})
}

// Refused is the error of a change after which the configuration would have faults that it does not have now.
type Refused struct {
	Faults switchboard.Faults // at their places in the changed file
}

func (r *Refused) Error() string {
	return "nothing was changed, because the configuration would have faults that it does not have now:\n" + r.Faults.Error()
}

// Unwrap returns the faults.
func (r *Refused) Unwrap() error { return r.Faults }

// Check reports the faults that a configuration has with the text next in its file and does not have with the text old;
// an old text of nil has none. The error is a *Refused.
func Check(ctx context.Context, file string, opts config.Options, old, next []byte) error {
	after, err := faults(ctx, file, opts, next)
	if err != nil || len(after) == 0 {
		return err
	}
	known := map[switchboard.Fault]bool{}
	if old != nil {
		before, err := faults(ctx, file, opts, old)
		if err != nil {
			return err
		}
		for _, f := range before {
			known[withoutPlace(f, file)] = true
		}
	}
	var added switchboard.Faults
	for _, f := range after {
		if !known[withoutPlace(f, file)] {
			added = append(added, f)
		}
	}
	if added == nil {
		return nil
	}
	return &Refused{added}
}

// faults returns the faults of the configuration with a text in its file, also those that affect only a part of it.
func faults(ctx context.Context, file string, opts config.Options, text []byte) (switchboard.Faults, error) {
	opts.Text, opts.Watch, opts.Previous = append([]byte{}, text...), nil, nil
	cfg, err := config.Load(ctx, file, opts)
	if err == nil {
		err = cfg.Err()
	}
	if err == nil {
		return nil, nil
	}
	fs, ok := errors.AsType[switchboard.Faults](err)
	if !ok {
		return nil, err
	}
	return fs, nil
}

var lineNumber = regexp.MustCompile(`line \d+`)

// withoutPlace returns a fault without what an edit of the file moves: the lines of the file, and the names that a
// remedy lists.
func withoutPlace(f switchboard.Fault, file string) switchboard.Fault {
	text, _, _ := strings.Cut(f.Text, "; ")
	f.Text = lineNumber.ReplaceAllString(text, "line")
	if f.File == file {
		f.Line, f.Column = 0, 0
	}
	return f
}

// ListFiles returns the names in all ${file:NAME} of the text: of each server's row, and of everything else. file names the
// text in faults. The error is switchboard.Faults.
func ListFiles(file string, text []byte) (byServer map[switchboard.ServerID][]string, elsewhere []string, err error) {
	s, err := readSource(file, text, servers)
	if err != nil {
		return nil, nil, err
	}
	byServer = map[switchboard.ServerID][]string{}
	for _, r := range s.rows {
		byServer[switchboard.ServerID(r.Key.Text)] = filesIn(r.Value)
	}
	return byServer, filesIn(document.Node{Kind: document.KindMap, Pairs: s.others()}), nil
}

// filesIn returns the names in the ${file:NAME} of a value.
func filesIn(n document.Node) (names []string) {
	if n.Kind == document.KindText {
		pieces, _ := document.SplitReferences(n.Text) // a text without references may hold any ${
		for _, p := range pieces {
			if p.Kind == "file" {
				names = append(names, p.Text)
			}
		}
	}
	for _, item := range n.Items {
		names = append(names, filesIn(item)...)
	}
	for _, p := range n.Pairs {
		names = append(names, filesIn(p.Value)...)
	}
	return names
}
