package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// accept moves the chosen suggestions into the server's overlay.
func (a *annotateCmd) accept(ctx context.Context, io streams, cfg *config.Config, offered *admin.OfferList) error {
	file := a.overlayPath(a.Server, config.SuggestedSuffix)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there are no suggestions for %s: there is no %s; switchboard annotate %s writes it", a.Server, file, a.Server)
	}
	if err != nil {
		return err
	}
	of, rows, err := annotate.ReadProposal(file, text)
	if err == nil {
		err = cfg.CheckOverlay(file, text)
	}
	if err != nil {
		return err
	}
	if of != a.Server {
		return fmt.Errorf("%s: its rows are for the server %s, not for %s", file, of, a.Server)
	}
	chosen, err := a.chooseRows(file, rows)
	if err != nil {
		return err
	}
	accepted, labelled, err := a.checkRows(cfg, offered, file, chosen)
	if err != nil {
		fmt.Fprintln(io.err, "switchboard:", err)
		return errNegative
	}
	if err := a.writeAccepted(ctx, cfg, file, accepted, labelled); err != nil {
		return err
	}
	return a.printAccepted(io, accepted, labelled)
}

// chooseRows returns the rows of the tools that the user named, or all.
func (a *annotateCmd) chooseRows(file string, rows []annotate.ProposedRow) ([]annotate.ProposedRow, error) {
	if len(a.Tools) == 0 {
		return rows, nil
	}
	var chosen []annotate.ProposedRow
	var known []string
	for _, r := range rows {
		known = append(known, r.Tool)
		if slices.Contains(a.Tools, r.Tool) {
			chosen = append(chosen, r)
		}
	}
	for _, name := range a.Tools {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s has no suggestion for %q%s", file, name, config.SuggestName(name, "tools", known))
		}
	}
	return chosen, nil
}

// checkRows returns the rows that may be accepted, and the tools that have a label already. If the server offers the tool
// of a row with another definition now, or not at all, that is an error: no person has read that definition.
func (a *annotateCmd) checkRows(cfg *config.Config, offered *admin.OfferList, file string, rows []annotate.ProposedRow) (accepted []annotate.ProposedRow, labelled []labelledTool, err error) {
	now := map[string]admin.OfferedTool{}
	for _, t := range offered.Tools {
		if t.Server == a.Server {
			now[t.Tool] = t
		}
	}
	var wrong []string
	for _, r := range rows {
		t, ok := now[r.Tool]
		overlay, described := cfg.Overlays[switchboard.ToolID{Server: a.Server, Name: r.Tool}]
		switch {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s: the server does not offer this tool now", file, r.Line, r.Tool))
		case len(overlay.Capabilities) > 0:
			labelled = append(labelled, labelledTool{r.Tool, []string{"an overlay labels it"}})
		case len(t.Labels) > 0:
			labelled = append(labelled, labelledTool{r.Tool, t.Labels})
		case described:
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s: an overlay says other things about this tool already; put this into its row, and remove this one: %s", file, r.Line, r.Tool, strings.Trim(edit.Format(r.Value), "{}")))
		case r.Digest == "":
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s: the comment with the digest of the definition is missing; a row of your own belongs into %s", file, r.Line, r.Tool, a.overlayPath(a.Server, ".yaml")))
		case t.Digest != r.Digest:
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s: its definition has changed since the suggestion was made", file, r.Line, r.Tool))
		default:
			accepted = append(accepted, r)
		}
	}
	if len(wrong) > 0 {
		return nil, nil, fmt.Errorf("nothing was accepted:\n  %s\nRun switchboard annotate %s again, and look at these tools. It keeps what you have changed in other rows",
			strings.Join(wrong, "\n  "), a.Server)
	}
	return accepted, labelled, nil
}

// writeAccepted writes the overlay first: if the second step fails, accepting again only removes the suggestions.
func (a *annotateCmd) writeAccepted(ctx context.Context, cfg *config.Config, file string, accepted []annotate.ProposedRow, labelled []labelledTool) error {
	if a.DryRun {
		return nil
	}
	overlay := a.overlayPath(a.Server, ".yaml")
	if len(accepted) > 0 {
		entries := make([]edit.NamedNode, len(accepted))
		for i, r := range accepted {
			entries[i] = edit.NamedNode{Name: r.Tool, Value: r.Value}
		}
		err := changeFile(ctx, overlay, func(old []byte) ([]byte, error) {
			if old == nil {
				old = []byte("server: " + string(a.Server) + "\n")
			}
			next, err := edit.AddRows(overlay, old, "tools", entries)
			if err != nil {
				return nil, err
			}
			if of, _, err := annotate.ReadProposal(overlay, next); err == nil && of != a.Server {
				return nil, fmt.Errorf("%s is an overlay of the server %s; rename that file", overlay, of)
			}
			return next, cfg.CheckOverlay(overlay, next)
		})
		if err != nil {
			return err
		}
	}
	return changeFile(ctx, file, func(old []byte) ([]byte, error) {
		_, rows, err := annotate.ReadProposal(file, old)
		if err != nil {
			return nil, err
		}
		done := func(tool string) bool {
			return slices.ContainsFunc(accepted, func(r annotate.ProposedRow) bool { return r.Tool == tool }) ||
				slices.ContainsFunc(labelled, func(l labelledTool) bool { return l.Tool == tool })
		}
		return annotate.WithoutRows(old, rows, done), nil
	})
}

// printAccepted says which labels count now.
func (a *annotateCmd) printAccepted(io streams, accepted []annotate.ProposedRow, labelled []labelledTool) error {
	if a.JSON {
		names := []string{}
		for _, r := range accepted {
			names = append(names, r.Tool)
		}
		return json.NewEncoder(io.raw).Encode(struct {
			Server   switchboard.ServerID `json:"server"`
			Accepted []string             `json:"accepted"`
			Labelled []labelledTool       `json:"labelled,omitempty"`
			File     string               `json:"file"`
			DryRun   bool                 `json:"dry_run,omitempty"`
		}{a.Server, names, labelled, a.overlayPath(a.Server, ".yaml"), a.DryRun})
	}
	for _, r := range accepted {
		fmt.Fprintf(io.out, "%s: %s\n", r.Tool, edit.Format(r.Value))
	}
	for _, l := range labelled {
		fmt.Fprintf(io.out, "%s: left as it is, for it has labels: %s\n", l.Tool, strings.Join(l.Labels, "; "))
	}
	what := "added to "
	if a.DryRun {
		what = "would be added to "
	}
	_, err := fmt.Fprintf(io.out, "%s %s%s\n", count(len(accepted), "label"), what, a.overlayPath(a.Server, ".yaml"))
	return err
}

// addResources adds the terms of --add-resource to taxonomy.yaml, unless they are there.
func (a *annotateCmd) addResources(ctx context.Context, io streams) error {
	if len(a.AddResource) == 0 {
		return nil
	}
	file := filepath.Join(filepath.Dir(a.Config), "taxonomy.yaml")
	if a.DryRun {
		return usageError{errors.New("--add-resource changes taxonomy.yaml, so it does not go with --dry-run")}
	}
	if _, err := os.Stat(a.Config); err != nil {
		return nil // the reading of the configuration says what is wrong
	}
	if err := a.checkServer(config.ServerIDs(a.Config)); err != nil {
		return err
	}
	for _, term := range a.AddResource {
		switch {
		case !config.IsTerm(term):
			return usageError{fmt.Errorf("--add-resource %q: use at most 64 lower-case letters and digits, in words parted by _ or -", term)}
		case slices.Contains(switchboard.BuiltinResources, switchboard.Resource(term)):
			return usageError{fmt.Errorf("--add-resource %s: it is built in", term)}
		}
	}
	added := 0
	err := changeFile(ctx, file, func(old []byte) ([]byte, error) {
		known, err := edit.ListRows(file, old, "resources")
		if err != nil {
			return nil, err
		}
		var entries []edit.NamedNode
		for _, term := range a.AddResource {
			if !slices.Contains(known, term) {
				entries = append(entries, edit.NamedNode{Name: term, Value: document.Node{Kind: document.KindMap}})
				known = append(known, term)
			}
		}
		added = len(entries)
		return edit.AddRows(file, old, "resources", entries)
	})
	if err == nil {
		fmt.Fprintf(io.err, "added %s to %s\n", count(added, "resource"), file)
	}
	return err
}

// putFile writes a whole file; a text of nil removes it.
func putFile(ctx context.Context, name string, text []byte) error {
	return changeFile(ctx, name, func([]byte) ([]byte, error) { return text, nil })
}

// errRemove tells changeFile to remove the file.
var errRemove = errors.New("the file is to be removed")

// changeFile replaces a file by the result of change, which gets nil if there is no such file. A result of nil removes
// the file.
func changeFile(ctx context.Context, name string, change func(old []byte) ([]byte, error)) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	err := rewrite.File(ctx, name, 0o600, func(old []byte) ([]byte, error) {
		next, err := change(old)
		if err == nil && next == nil && old != nil {
			err = errRemove
		}
		return next, err
	})
	if errors.Is(err, errRemove) {
		return os.Remove(name)
	}
	return err
}
