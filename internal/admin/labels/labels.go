// Package labels lists suggested labels for officers, and adds the rows that an officer accepts to the operator's overlays.
//
// It decides which suggestions are open, and their order. It accepts a row only for the definition that the server offers at that moment. Package annotate makes the
// suggestions, and package change writes the file.
package labels

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A LabelSuggestion is what is suggested for one tool.
type LabelSuggestion struct {
	Server switchboard.ServerID `json:"server"`
	annotate.ToolSuggestion

	// Overlay is the row of an overlay that accepting the suggestion adds; "" if there is no suggestion.
	Overlay string `json:"overlay,omitempty"`

	// LabelEnd says why earlier labels of the tool have ended; "" if there were none.
	LabelEnd string `json:"label_end,omitempty"`
}

// PlaceOf returns the place of a suggestion in a list of List, which is sorted by it: contradictions first, then the least confidence.
func PlaceOf(s LabelSuggestion) string {
	return fmt.Sprintf("%d %03d %03d %s", 1-min(1, len(s.Contradictions)), s.Confidence, s.Lead, s.Tool)
}

// List returns the suggestions for all tools of a server without labels, sorted by PlaceOf.
func List(offered *admin.OfferList, server switchboard.ServerID) []LabelSuggestion {
	of := annotate.ToolServer{Name: string(server)}
	present := map[string]*admin.OfferedTool{}
	for i := range offered.Tools {
		t := &offered.Tools[i]
		of.Tools = append(of.Tools, annotate.DefinedTool{Name: t.Tool, Definition: t.Definition, Digest: t.Digest})
		present[t.Tool] = t
	}
	open := []LabelSuggestion{}
	for _, s := range annotate.Suggest(of, offered.Taxonomy) {
		t := present[s.Tool]
		if len(t.Labels) > 0 {
			continue
		}
		one := LabelSuggestion{Server: server, ToolSuggestion: s, LabelEnd: t.LabelEnd}
		if row, ok := s.Row(); ok {
			one.Overlay = edit.Format(row.Value)
		}
		open = append(open, one)
	}
	slices.SortFunc(open, func(a, b LabelSuggestion) int { return cmp.Compare(PlaceOf(a), PlaceOf(b)) })
	return open
}

// A NamedRow is a row that an officer accepts for one tool.
type NamedRow struct {
	Tool   string
	Digest switchboard.Digest // of the definition that the officer has looked at

	// Overlay is the officer's own row in place of the suggested one; nil takes the suggested one.
	Overlay json.RawMessage
}

// Accept adds the rows to the overlay of the server, all or none, and returns the change when it is in force here. The error is a *switchboard.Error: SB-CONF-002 if the server offers
// another definition by now, SB-CONF-001 with the faults of a row, or an error of change.Editor.Apply. The Revision is nil if nothing changes.
func Accept(ctx context.Context, offered *admin.OfferList, server switchboard.ServerID, named []NamedRow, e *change.Editor, by switchboard.Officer, reason string) (*change.Revision, error) {
	open := List(offered, server)
	present := map[string]*annotate.PresentTool{}
	for _, t := range offered.Tools {
		present[t.Tool] = &annotate.PresentTool{Digest: t.Digest, Labels: t.Labels, Described: t.Described, Ended: t.Ended}
	}
	rows := make([]annotate.ProposedRow, len(named))
	for i, n := range named {
		if slices.ContainsFunc(named[:i], func(o NamedRow) bool { return o.Tool == n.Tool }) {
			return nil, refuse(switchboard.CodeBadArguments, n.Tool, "it stands among the rows twice")
		}
		if t := present[n.Tool]; t != nil && len(t.Labels) > 0 {
			return nil, refuse(switchboard.CodeBadArguments, n.Tool, "it has labels: "+strings.Join(t.Labels, "; "))
		} else if t == nil || t.Digest != n.Digest {
			return nil, refuse(switchboard.CodeChangedMeanwhile, n.Tool, "its server does not offer the definition with the digest that was looked at")
		}
		var err error
		if rows[i], err = rowOf(n, open); err != nil {
			return nil, refuse(switchboard.CodeBadArguments, n.Tool, err.Error())
		}
	}
	if _, _, wrong := annotate.CheckRows(rows, func(tool string) *annotate.PresentTool { return present[tool] }); len(wrong) > 0 {
		return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "nothing was accepted: " + strings.Join(wrong, "; ")}
	}
	file := "overlays/" + string(server) + ".yaml"
	return change.EditText(ctx, e, by, file, reason, func(text []byte) ([]byte, error) {
		next, err := annotate.AcceptRows(file, text, server, rows)
		if err != nil {
			return nil, &switchboard.Error{Code: switchboard.CodeConfig, Text: err.Error(), Hint: "nothing was written"}
		}
		return next, nil
	})
}

// rowOf returns the row that the officer names.
func rowOf(n NamedRow, open []LabelSuggestion) (annotate.ProposedRow, error) {
	if len(n.Overlay) > 0 {
		return annotate.NewRow(n.Tool, n.Digest, n.Overlay)
	}
	i := slices.IndexFunc(open, func(s LabelSuggestion) bool { return s.Tool == n.Tool })
	if row, ok := open[i].Row(); ok {
		return row, nil
	}
	return annotate.ProposedRow{}, fmt.Errorf("there is no suggestion for it: %s; give an overlay of your own", cmp.Or(open[i].Why, annotate.NameFault(n.Tool)))
}

func refuse(code switchboard.Code, tool, why string) error {
	return &switchboard.Error{Code: code, Text: fmt.Sprintf("%.200q: %s", tool, why), Hint: "nothing was accepted; list the suggestions again"}
}
