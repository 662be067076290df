package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type annotateCmd struct {
	commonFlags
	targetFlags
	outputFlags
	All         bool     `help:"Suggest labels for the tools of all servers."`
	Unlabelled  bool     `help:"Only list the tools without labels, which no task finds by a capability."`
	Accept      bool     `help:"Move suggestions into the server's overlay, where they count."`
	Review      bool     `help:"Ask about one tool after the other: those that need a look first, then the least sure ones. Each accepted row counts at once."`
	AddResource []string `help:"Add the resource TERM to taxonomy.yaml first." placeholder:"TERM"`
	DryRun      bool     `help:"Print what would be written, and write no file."`

	Server switchboard.ServerID `arg:"" optional:"" help:"The server."`
	Tools  []string             `arg:"" optional:"" help:"With --accept: only these tools."`
}

// Run suggests labels, lists the tools without any, or accepts suggestions.
func (a *annotateCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	switch {
	case a.Unlabelled && (a.Accept || len(a.AddResource) > 0):
		return usageError{errors.New("--unlabelled goes with neither --accept nor --add-resource")}
	case len(a.Tools) > 0 && !a.Accept:
		return usageError{errors.New("names of tools go with --accept only; annotate reads all tools of a server")}
	case a.Accept && (a.All || a.Server == ""):
		return usageError{errors.New("--accept takes one server: you answer for its labels, so look at its suggestions first")}
	case a.All && a.Server != "":
		return usageError{errors.New("--all is for all servers; leave the server away, or --all")}
	case a.Review && (a.Accept || a.Unlabelled || a.JSON || a.DryRun):
		return usageError{errors.New("--review asks, and writes what you accept; it goes with none of --accept, --unlabelled, --json and --dry-run")}
	case !a.All && a.Server == "" && !a.Unlabelled && !a.Review:
		return usageError{errors.New("name a server, or give --all for all of them")}
	case a.MCPConfig != "" && !a.DryRun && !a.Unlabelled:
		return usageError{fmt.Errorf("labels need a folder of configuration: switchboard import %s makes one; or give --dry-run", a.MCPConfig)}
	}
	if err := a.addResources(ctx, io); err != nil {
		return err
	}
	cfg, err := a.loadConfig(ctx, log, config.Options{})
	if err != nil {
		return err
	}
	var ids []string
	for i := range cfg.Servers {
		ids = append(ids, string(cfg.Servers[i].ID))
	}
	if err := a.checkServer(ids); err != nil {
		return err
	}
	offered, err := a.fetchOffered(ctx, io, log)
	if err != nil {
		return err
	}
	if len(offered.Starting) > 0 && (a.Server == "" || slices.Contains(offered.Starting, a.Server)) {
		fmt.Fprintf(io.err, "switchboard: %s after %s: %s\n", notAnsweredText, a.Wait, joinIDs(offered.Starting))
	}
	if len(offered.Unknown) > 0 {
		fmt.Fprintf(io.err, "switchboard: the tools of these servers are not known, because the servers do not answer: %s; switchboard logs says more\n", joinIDs(offered.Unknown))
	}
	if a.Accept {
		return a.accept(ctx, io, cfg, offered)
	}
	if a.Server != "" && len(offered.Tools) == 0 {
		if !slices.Contains(offered.Unknown, a.Server) {
			fmt.Fprintf(io.err, "switchboard: %s offers no tools\n", a.Server)
		}
		return errNegative
	}
	found := a.suggest(cfg, offered)
	if a.Unlabelled {
		return a.printUnlabelled(io, found)
	}
	for _, s := range found.Servers {
		if err := a.propose(ctx, s); err != nil {
			return err
		}
	}
	if a.Review {
		return a.review(ctx, io, cfg, offered, found)
	}
	if a.JSON {
		return encodeJSON(io.raw, found)
	}
	found.print(io.out)
	return nil
}

// checkServer returns an error if the server is not one of the configuration.
func (a *annotateCmd) checkServer(known []string) error {
	if a.Server == "" || slices.Contains(known, string(a.Server)) {
		return nil
	}
	return usageError{fmt.Errorf("there is no server %q%s", a.Server, config.SuggestName(string(a.Server), "servers", known))}
}

// fetchOffered lists the tools of the Switchboard that serves, or else of one that it starts.
func (a *annotateCmd) fetchOffered(ctx context.Context, io streams, log *slog.Logger) (*admin.OfferList, error) {
	starting := func(l *admin.OfferList) []switchboard.ServerID {
		if a.Server != "" && !slices.Contains(l.Starting, a.Server) {
			return nil
		}
		return l.Starting
	}
	t := taskTarget{commonFlags: a.commonFlags, targetFlags: a.targetFlags}
	if !t.findTarget() {
		s, err := t.startApp(ctx, log, app.Options{})
		if err != nil {
			return nil, err
		}
		defer s.Stop()
		return pollUntilStarted(ctx, io, t.Wait, func() (*admin.OfferList, []switchboard.ServerID, error) {
			l := s.Reads().ListOffered(a.Server)
			return l, starting(l), nil
		})
	}
	return pollUntilStarted(ctx, io, t.Wait, func() (*admin.OfferList, []switchboard.ServerID, error) {
		l := admin.OfferList{Tools: []admin.OfferedTool{}}
		err := t.fetchPages(ctx, "/v1/tools", url.Values{"server": {string(a.Server)}}, func(page []byte) (string, error) {
			p := admin.OfferList{}
			err := json.Unmarshal(page, &p)
			l.Tools, l.Starting, l.Unknown = append(l.Tools, p.Tools...), p.Starting, p.Unknown
			return p.Next, err
		})
		return &l, starting(&l), err
	})
}

// annotated is the output of annotate --json.
type annotated struct {
	Servers []*annotatedServer `json:"servers"`

	// Missing are the resources that tools seem to act on and that the taxonomy does not have, with the number of tools.
	Missing  map[switchboard.Resource]int `json:"missing_resources,omitempty"`
	Starting []switchboard.ServerID       `json:"starting,omitempty"`
	Unknown  []switchboard.ServerID       `json:"unknown,omitempty"`
}

// An annotatedServer is one server in the output of annotate.
type annotatedServer struct {
	Server      switchboard.ServerID      `json:"server"`
	Suggestions []annotate.ToolSuggestion `json:"tools"`
	Labelled    []annotate.LabelledTool   `json:"labelled,omitempty"`

	// Ended says of tools why their labels have ended, or end soon.
	Ended map[string]string `json:"label_ends,omitempty"`

	// Never are the tools that no suggestion is wanted for.
	Never []string `json:"never,omitempty"`

	// File is the file of suggestions; "" if there is none. Wrote says that its bytes have changed now.
	File  string `json:"file,omitempty"`
	Wrote bool   `json:"wrote,omitempty"`

	// Lost are rows of an earlier file that are left out.
	Lost []annotate.LostRow `json:"lost,omitempty"`

	state   string                 // of File, in a word
	earlier []annotate.ProposedRow // of File, before
}

// suggest makes suggestions for all offered tools without labels. The labelled tools count as the other tools of their
// server.
func (a *annotateCmd) suggest(cfg *config.Config, offered *admin.OfferList) *annotated {
	out := &annotated{Servers: []*annotatedServer{}, Missing: map[switchboard.Resource]int{}, Starting: offered.Starting, Unknown: offered.Unknown}
	for rest := offered.Tools; len(rest) > 0; {
		id, n := rest[0].Server, 0
		for n < len(rest) && rest[n].Server == id {
			n++
		}
		tools := rest[:n]
		rest = rest[n:]
		one := &annotatedServer{Server: id, Suggestions: []annotate.ToolSuggestion{}}
		of := annotate.ToolServer{Name: string(id)}
		labels := map[string][]string{}
		for _, t := range tools {
			of.Tools = append(of.Tools, annotate.DefinedTool{Name: t.Tool, Definition: t.Definition, Digest: t.Digest})
			if t.LabelEnd != "" {
				if one.Ended == nil {
					one.Ended = map[string]string{}
				}
				one.Ended[t.Tool] = t.LabelEnd
			}
			if len(t.Labels) > 0 {
				labels[t.Tool] = t.Labels
				one.Labelled = append(one.Labelled, annotate.LabelledTool{Tool: t.Tool, Labels: t.Labels})
			}
		}
		for _, s := range annotate.Suggest(of, cfg.Taxonomy) {
			if labels[s.Tool] != nil {
				continue
			}
			one.Suggestions = append(one.Suggestions, s)
			if s.Missing != "" {
				out.Missing[s.Missing]++
			}
		}
		out.Servers = append(out.Servers, one)
	}
	return out
}

// overlayPath returns the path of the server's overlay, or of its file of suggestions.
func (a *annotateCmd) overlayPath(id switchboard.ServerID, suffix string) string {
	return filepath.Join(filepath.Dir(a.Config), "overlays", string(id)+suffix)
}

// propose writes the file of suggestions, and removes an old one if nothing is left to suggest.
func (a *annotateCmd) propose(ctx context.Context, s *annotatedServer) error {
	file := a.overlayPath(s.Server, config.SuggestedSuffix)
	var earlier []annotate.ProposedRow
	var never map[string]switchboard.Digest
	old, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if _, earlier, err = annotate.ReadProposal(file, old); err != nil {
			return fmt.Errorf("%w\n%s: repair this file, or remove it to start again", err, file)
		}
		never = annotate.ReadNever(old)
	}
	for _, g := range s.Suggestions {
		if never[g.Tool] == g.Digest {
			s.Never = append(s.Never, g.Tool)
		}
	}
	s.earlier = earlier
	text := annotate.WriteProposal(s.Server, s.Suggestions, earlier, never)
	s.Lost = annotate.ListLost(s.Suggestions, earlier, func(tool string) bool {
		return slices.ContainsFunc(s.Labelled, func(l annotate.LabelledTool) bool { return l.Tool == tool })
	})
	if text != nil {
		s.File, s.state = file, "unchanged:"
	}
	switch {
	case bytes.Equal(text, old):
		return nil
	case a.DryRun:
		s.state = "would write"
		return nil
	}
	s.Wrote, s.state = text != nil, "wrote"
	return putFile(ctx, file, text)
}

// print prints the suggestions with their signs.
func (f *annotated) print(w io.Writer) {
	for _, s := range f.Servers {
		fmt.Fprintf(w, "%s: %s without labels, %d with\n", s.Server, count(len(s.Suggestions), "tool"), len(s.Labelled))
		for i := range s.Suggestions {
			s.print(w, &s.Suggestions[i])
		}
		for _, l := range s.Lost {
			fmt.Fprintf(w, "\n  %s  its row in the earlier file is left out: %s\n", l.Tool, l.Why)
		}
		for _, l := range s.Labelled {
			fmt.Fprintf(w, "\n  %s  has labels: %s\n", l.Tool, strings.Join(l.Labels, "; "))
			if why := s.Ended[l.Tool]; why != "" {
				fmt.Fprintf(w, "    LOOK     %s\n", why)
			}
		}
		fmt.Fprintln(w)
	}
	f.printMissing(w)
	var servers []string
	for _, s := range f.Servers {
		if s.File != "" {
			fmt.Fprintf(w, "%s %s\n", s.state, s.File)
			servers = append(servers, string(s.Server))
		}
	}
	switch len(servers) {
	case 0:
	case 1:
		fmt.Fprintf(w, "Nothing in it counts until you accept it:\n  switchboard annotate --accept %s\n", servers[0])
	default:
		fmt.Fprintf(w, "Nothing in them counts until you accept it, for each server:\n  switchboard annotate --accept SERVER\n")
	}
}

// print prints one suggestion with its signs.
func (s *annotatedServer) print(w io.Writer, g *annotate.ToolSuggestion) {
	if g.Capability == nil {
		fmt.Fprintf(w, "\n  %s  no suggestion: %s\n", g.Tool, g.Why)
	} else {
		fmt.Fprintf(w, "\n  %s  %s  (%d %% sure)\n", g.Tool, g.Capability, g.Confidence)
	}
	if slices.Contains(s.Never, g.Tool) {
		fmt.Fprintf(w, "    not written: you never want a suggestion for this definition; remove the line \"# never %s\" from %s to change that\n", g.Tool, s.File)
	}
	if why := annotate.NameFault(g.Tool); why != "" && g.Capability != nil {
		fmt.Fprintf(w, "    not written: %s\n", why)
	}
	if why := s.Ended[g.Tool]; why != "" {
		fmt.Fprintf(w, "    LOOK     %s\n", why)
	}
	for _, c := range g.Contradictions {
		fmt.Fprintf(w, "    LOOK     %s\n", c)
	}
	if len(g.Resources) > 1 {
		fmt.Fprintf(w, "    or       the resource %s\n", joinIDs(g.Resources[1:]))
	}
	for _, f := range g.Facts {
		fmt.Fprintf(w, "    fact     %s  (%s)\n", f, strings.Join(f.Why, "; "))
	}
	printSigns(w, "for    ", g.For)
	printSigns(w, "against", g.Against)
}

// shownSigns limits the signs that are printed for and against one suggestion. --json has all of them.
const shownSigns = 12

func printSigns(w io.Writer, side string, signs []annotate.Sign) {
	for i, sign := range signs {
		if i == shownSigns {
			fmt.Fprintf(w, "    %s     and %d more\n", side, len(signs)-i)
			return
		}
		fmt.Fprintf(w, "    %s %3d  %s: %s\n", side, sign.Weight, sign.Where, sign.Says)
	}
}

// printMissing says which resources to add to the taxonomy.
func (f *annotated) printMissing(w io.Writer) {
	if len(f.Missing) == 0 {
		return
	}
	terms := slices.SortedFunc(maps.Keys(f.Missing), func(x, y switchboard.Resource) int {
		return cmp.Or(-cmp.Compare(f.Missing[x], f.Missing[y]), cmp.Compare(x, y))
	})
	texts, names := make([]string, len(terms)), make([]string, len(terms))
	for i, t := range terms {
		texts[i], names[i] = fmt.Sprintf("%s (%s)", t, count(f.Missing[t], "tool")), string(t)
	}
	fmt.Fprintf(w, "The taxonomy does not have these resources: %s.\nAdd those that you want, all or some: switchboard annotate --all --add-resource %s\n\n",
		strings.Join(texts, ", "), strings.Join(names, ","))
}

// An unlabelledTool is a row of annotate --unlabelled --json.
type unlabelledTool struct {
	Server    switchboard.ServerID `json:"server"`
	Tool      string               `json:"tool"`
	Suggested string               `json:"suggested,omitempty"`

	Contradictions []string `json:"contradictions,omitempty"`
}

// printUnlabelled lists the tools without labels.
func (a *annotateCmd) printUnlabelled(io streams, found *annotated) error {
	rows := []unlabelledTool{}
	for _, s := range found.Servers {
		for _, g := range s.Suggestions {
			row := unlabelledTool{Server: s.Server, Tool: g.Tool, Contradictions: g.Contradictions}
			if g.Capability != nil {
				row.Suggested = g.Capability.String()
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(x, y unlabelledTool) int {
		return cmp.Or(-cmp.Compare(min(1, len(x.Contradictions)), min(1, len(y.Contradictions))), cmp.Compare(x.Server, y.Server), cmp.Compare(x.Tool, y.Tool))
	})
	if a.JSON {
		return json.NewEncoder(io.raw).Encode(rows)
	}
	if len(rows) == 0 {
		which := "Every tool"
		if len(found.Starting)+len(found.Unknown) > 0 {
			which = "Every tool that is known"
		}
		fmt.Fprintln(io.out, which, "has a label.")
		return nil
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVER\tTOOL\tSUGGESTED")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.Server, printable(r.Tool, maxSummary), cmp.Or(r.Suggested, "nothing"))
	}
	return w.Flush()
}
