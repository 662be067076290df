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
	if err := a.writeAccepted(ctx, cfg, a.Server, accepted, labelled); err != nil {
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

// presentTools describes the tools of the server for annotate.CheckRows, by the offer and by the overlays in the files.
func presentTools(cfg *config.Config, offered *admin.OfferList, server switchboard.ServerID) func(tool string) *annotate.PresentTool {
	now := map[string]*annotate.PresentTool{}
	for _, t := range offered.Tools {
		if t.Server != server {
			continue
		}
		overlay, described := cfg.Overlays[switchboard.ToolID{Server: server, Name: t.Tool}]
		one := &annotate.PresentTool{Digest: t.Digest, Labels: t.Labels, Described: described, Ended: t.Ended}
		if len(overlay.Capabilities) > 0 && !t.Ended {
			one.Labels = []string{"an overlay labels it"}
		}
		now[t.Tool] = one
	}
	return func(tool string) *annotate.PresentTool { return now[tool] }
}

// checkRows is annotate.CheckRows for rows of a file. If one of them is wrong, none is accepted.
func (a *annotateCmd) checkRows(cfg *config.Config, offered *admin.OfferList, file string, rows []annotate.ProposedRow) (accepted []annotate.ProposedRow, labelled []annotate.LabelledTool, err error) {
	accepted, labelled, wrong := annotate.CheckRows(rows, presentTools(cfg, offered, a.Server))
	if len(wrong) == 0 {
		return accepted, labelled, nil
	}
	for i, text := range wrong {
		tool, _, _ := strings.Cut(text, ": ")
		at := slices.IndexFunc(rows, func(r annotate.ProposedRow) bool { return r.Tool == tool })
		wrong[i] = fmt.Sprintf("%s:%d: %s", file, rows[at].Line, text)
	}
	return nil, nil, fmt.Errorf("nothing was accepted:\n  %s\nRun switchboard annotate %s again, and look at these tools. It keeps what you have changed in other rows",
		strings.Join(wrong, "\n  "), a.Server)
}

// writeAccepted writes the overlay first: if the second step fails, accepting again only removes the suggestions.
func (a *annotateCmd) writeAccepted(ctx context.Context, cfg *config.Config, server switchboard.ServerID, accepted []annotate.ProposedRow, labelled []annotate.LabelledTool) error {
	if a.DryRun {
		return nil
	}
	overlay, file := a.overlayPath(server, ".yaml"), a.overlayPath(server, config.SuggestedSuffix)
	if len(accepted) > 0 {
		err := changeFile(ctx, overlay, func(old []byte) ([]byte, error) {
			next, err := annotate.AcceptRows(overlay, old, server, accepted)
			if err != nil {
				return nil, err
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
				slices.ContainsFunc(labelled, func(l annotate.LabelledTool) bool { return l.Tool == tool })
		}
		return annotate.WithoutRows(old, rows, done), nil
	})
}

// printAccepted says which labels count now.
func (a *annotateCmd) printAccepted(io streams, accepted []annotate.ProposedRow, labelled []annotate.LabelledTool) error {
	if a.JSON {
		names := []string{}
		for _, r := range accepted {
			names = append(names, r.Tool)
		}
		return json.NewEncoder(io.raw).Encode(struct {
			Server   switchboard.ServerID    `json:"server"`
			Accepted []string                `json:"accepted"`
			Labelled []annotate.LabelledTool `json:"labelled,omitempty"`
			File     string                  `json:"file"`
			DryRun   bool                    `json:"dry_run,omitempty"`
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
