package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/replay"
)

type configCmd struct {
	Files   configFilesCmd   `cmd:"" help:"List the files of the configuration that you may change."`
	Get     configGetCmd     `cmd:"" help:"Print a file of the configuration that a running Switchboard serves."`
	Put     configPutCmd     `cmd:"" help:"Change a file: it is checked as a reload checks it, written whole, and in force when the command ends. With --dry-run: only say what the change would do."`
	Delete  configDeleteCmd  `cmd:"" help:"Delete a file, as put changes one."`
	Set     configSetCmd     `cmd:"" help:"Change one part of a YAML file: comments, order and everything else stay. Else as put."`
	History configHistoryCmd `cmd:"" help:"List the last changes that were made by commands, by the API and by the page."`
	Show    configShowCmd    `cmd:"" help:"Print the difference that a change has made."`
	Revert  configRevertCmd  `cmd:"" help:"Restore what a file was before a change, if it has not been changed since."`
}

type configFilesCmd struct{ serverFlags }

// Run prints the files.
func (c *configFilesCmd) Run(ctx context.Context, io streams) error {
	files, err := fetchList[change.ConfigFile](ctx, c.asTarget(), "/v1/configuration/files", "files", nil)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(files)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FILE\tBYTES\tNEEDS")
	for _, f := range files {
		needs := string(f.Office)
		if f.Tenant != "" {
			needs += " of " + string(f.Tenant)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", f.Path, f.Size, needs)
	}
	return w.Flush()
}

// configPathFlags name a file.
type configPathFlags struct {
	serverFlags
	Path string `arg:"" help:"The file, relative to the folder of the configuration, such as tenants/acme/tenant.yaml."`
}

// query returns the path of the request for the file. more has names and values in turn.
func (c *configPathFlags) query(more ...string) string {
	q := url.Values{"path": {c.Path}}
	for i := 0; i < len(more); i += 2 {
		if more[i+1] != "" {
			q.Set(more[i], more[i+1])
		}
	}
	return "/v1/configuration/file?" + q.Encode()
}

// read returns the text of the file and its entity tag.
func (c *configPathFlags) read(ctx context.Context) (text, etag string, err error) {
	answer, err := c.asTarget().askAdmin(ctx, http.MethodGet, c.query(), nil)
	if err != nil {
		return "", "", err
	}
	var file struct {
		Text string `json:"text"`
	}
	return file.Text, answer.header.Get("ETag"), json.Unmarshal(answer.body, &file)
}

type configGetCmd struct{ configPathFlags }

// Run prints the file.
func (c *configGetCmd) Run(ctx context.Context, io streams) error {
	text, etag, err := c.read(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(map[string]string{"path": c.Path, "etag": etag, "text": text})
	}
	_, err = fmt.Fprint(io.raw, text)
	return err
}

// changeFlags are the flags of commands that change a file.
type changeFlags struct {
	New     bool   `help:"There is no such file yet."`
	IfMatch string `help:"Change the file only if it has this entity tag, which get --json prints. Without it: only if nobody changes it while this command runs." placeholder:"ETAG"`
	DryRun  bool   `help:"Say what the change would do, and change nothing."`
	Reason  string `help:"The reason, for the history and the receipt." placeholder:"TEXT"`
}

// precondition returns the header that says what the change replaces.
func (f *changeFlags) precondition(ctx context.Context, c *configPathFlags) ([]string, error) {
	switch {
	case f.DryRun:
		return nil, nil
	case f.New:
		return []string{"If-None-Match", "*"}, nil
	case f.IfMatch != "":
		return []string{"If-Match", f.IfMatch}, nil
	}
	_, etag, err := c.read(ctx)
	return []string{"If-Match", etag}, err
}

type configPutCmd struct {
	configPathFlags
	File string `arg:"" help:"The file with the new text; - is stdin."`
	changeFlags
}

// Run changes the file.
func (c *configPutCmd) Run(ctx context.Context, io streams) error {
	text, err := readText(io, c.File, config.MaxBytes(c.Path))
	if err != nil {
		return usageError{err}
	}
	header, err := c.precondition(ctx, &c.configPathFlags)
	if err != nil {
		return err
	}
	return c.send(ctx, io, http.MethodPut, c.query("dry_run", trueText(c.DryRun)), map[string]string{"text": string(text), "reason": c.Reason}, header)
}

type configSetCmd struct {
	configPathFlags
	At     string `arg:"" help:"The part: keys with / between them, numbers from 0 for items of lists, - for a new item; such as ranking/prefer/0/servers. ~1 stands for a / within a key."`
	Value  string `arg:"" optional:"" help:"The new value: JSON, or else a text."`
	Remove bool   `help:"Remove the part."`
	changeFlags
}

// Run changes one part of the file.
func (c *configSetCmd) Run(ctx context.Context, io streams) error {
	if c.Remove == (c.Value != "") {
		return usageError{errors.New("give a value, or --remove")}
	}
	if c.New {
		return usageError{errors.New("a new file is put as a whole: switchboard config put --new")}
	}
	one := map[string]any{"at": "/" + strings.TrimPrefix(c.At, "/")}
	var value any
	switch {
	case c.Remove:
		one["remove"] = true
	case json.Unmarshal([]byte(c.Value), &value) == nil:
		one["value"] = value
	default:
		one["value"] = c.Value
	}
	header, err := c.precondition(ctx, &c.configPathFlags)
	if err != nil {
		return err
	}
	return c.send(ctx, io, http.MethodPatch, c.query("dry_run", trueText(c.DryRun)), map[string]any{"edits": []any{one}, "reason": c.Reason}, header)
}

// readText returns the text of a file, or of stdin for "-". It reads at most one byte more than most from stdin.
func readText(in streams, file string, most int) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(in.in, int64(most)+1))
	}
	return os.ReadFile(file)
}

func trueText(b bool) string {
	if b {
		return "true"
	}
	return ""
}

type configDeleteCmd struct {
	configPathFlags
	changeFlags
}

// Run deletes the file.
func (c *configDeleteCmd) Run(ctx context.Context, io streams) error {
	header, err := c.precondition(ctx, &c.configPathFlags)
	if err != nil {
		return err
	}
	return c.send(ctx, io, http.MethodDelete, c.query("dry_run", trueText(c.DryRun), "reason", c.Reason), nil, header)
}

// A changeOutcome is the answer to a change.
type changeOutcome struct {
	Change   *change.Revision `json:"change"`
	Trial    *change.Trial    `json:"trial"`
	Replicas []string         `json:"other_configurations"`
}

// send sends a change and prints what came of it. It returns errNegative if a trial has found faults.
func (s *serverFlags) send(ctx context.Context, io streams, method, path string, body any, header []string) error {
	answer, err := s.asTarget().changeAdmin(ctx, method, path, body, header...)
	if err != nil {
		return err
	}
	var o changeOutcome
	if err := json.Unmarshal(answer.body, &o); err != nil {
		return err
	}
	if s.JSON {
		if err := json.NewEncoder(io.raw).Encode(o); err != nil {
			return err
		}
	} else if o.Trial != nil {
		writeTrial(io, o.Trial)
	} else {
		fmt.Fprintf(io.out, "%s is changed and in force; to restore it: switchboard config revert %s\n", o.Change.Path, o.Change.ID)
	}
	for _, r := range o.Replicas {
		fmt.Fprintf(io.err, "switchboard: another replica serves another configuration: %s\n", r)
	}
	if o.Trial != nil && len(o.Trial.Faults) > 0 {
		return errNegative
	}
	return nil
}

// writeTrial prints what a change would do.
func writeTrial(io streams, t *change.Trial) {
	for _, f := range t.Faults {
		fmt.Fprintln(io.out, "fault:", printable(f, 400))
	}
	for _, f := range t.Warnings {
		fmt.Fprintln(io.out, "warning:", printable(f, 400))
	}
	if t.Diff == "" {
		fmt.Fprintln(io.out, "the file has this text already")
	} else {
		fmt.Fprint(io.out, t.Diff)
	}
	if len(t.Faults) > 0 {
		fmt.Fprintln(io.out, "\nThe change would be refused.")
		return
	}
	fmt.Fprintf(io.out, "\nIt would change: %s\n", t.Changed)
	if t.Programs {
		fmt.Fprintln(io.out, "It changes what is run: only an edit of the file does that, unless admin.edit is programs.")
	}
	if len(t.Tasks) == 0 && t.Untried == 0 {
		fmt.Fprintln(io.out, "Each task gets the tools that it gets now.")
	}
	for _, task := range t.Tasks {
		fmt.Fprintf(io.out, "task %s of %s\n  now:   %s\n  after: %s\n", task.Task, task.Tenant, listText(task.Before, ""), listText(task.After, task.Why))
	}
	if t.Untried > 0 {
		fmt.Fprintf(io.out, "Not tried, because there are too many: %s\n", count(t.Untried, "more task"))
	}
	if t.Past != nil {
		writePast(io.out, t.Past)
	}
}

// writePast prints what past decisions would have been.
func writePast(w io.Writer, p *change.PastDecisions) {
	if p.Why != "" {
		fmt.Fprintf(w, "What last week's decisions would have been is not known: %s\n", printable(p.Why, 400))
		return
	}
	looked := lookedText(&replay.LookedAt{Decisions: p.Looked, Of: p.Of, OrMore: p.OrMore, Back: p.Back})
	fmt.Fprintf(w, "Last week's decisions: %d the same, %d different", p.Same, p.Different)
	if p.Unknown > 0 {
		fmt.Fprintf(w, ", %d not known", p.Unknown)
	}
	fmt.Fprintf(w, "; %s\n", looked)
	for i := range p.Changes {
		c := &p.Changes[i]
		for _, table := range diffTables {
			if table.kind == c.Kind {
				fmt.Fprintf(w, "  %s: %s %s (%s): %s\n", table.head, c.Tenant, strings.Join(table.row(c), ", "), count(c.Decisions, "decision"), printable(c.Why, 200))
			}
		}
	}
	if p.More > 0 {
		fmt.Fprintf(w, "  and %d more; policy diff lists all\n", p.More)
	}
}

func listText(tools []string, why string) string {
	switch {
	case why != "":
		return "nothing: " + printable(why, 200)
	case len(tools) == 0:
		return "nothing"
	}
	return strings.Join(tools, ", ")
}

type configHistoryCmd struct{ serverFlags }

// Run prints the history.
func (c *configHistoryCmd) Run(ctx context.Context, io streams) error {
	changes, err := fetchList[change.Revision](ctx, c.asTarget(), "/v1/configuration/changes", "changes", nil)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(changes)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tWHEN\tBY\tAS\tFILE\tWHY")
	for _, h := range changes {
		why := printable(h.Reason, 100)
		if h.Reverts != "" {
			why = strings.TrimSpace("reverts " + h.Reverts + " " + why)
		}
		if h.Source != "" {
			why = strings.TrimSpace(h.Source + ": " + why)
		}
		path := h.Path
		if len(h.More) > 0 {
			path += " and " + count(len(h.More), "more file")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", h.ID, h.When.Local().Format(time.DateTime), h.By, h.Office, path, why)
	}
	return w.Flush()
}

// changeIDFlags name a change.
type changeIDFlags struct {
	serverFlags
	ID string `arg:"" help:"The change, as history shows it."`
}

type configShowCmd struct{ changeIDFlags }

// Run prints the difference.
func (c *configShowCmd) Run(ctx context.Context, io streams) error {
	answer, err := c.asTarget().askAdmin(ctx, http.MethodGet, "/v1/configuration/changes/"+url.PathEscape(c.ID), nil)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := fmt.Fprintf(io.raw, "%s", answer.body)
		return err
	}
	var one struct {
		change.Revision
		Diff string `json:"diff"`
	}
	if err := json.Unmarshal(answer.body, &one); err != nil {
		return err
	}
	fmt.Fprintf(io.out, "change %s of %s, by %s as %s, receipt %s\n", one.ID, one.When.Local().Format(time.DateTime), one.By, one.Office, one.Receipt)
	_, err = fmt.Fprint(io.out, one.Diff)
	return err
}

type configRevertCmd struct {
	changeIDFlags
	Reason string `help:"The reason, for the history and the receipt." placeholder:"TEXT"`
}

// Run reverts the change.
func (c *configRevertCmd) Run(ctx context.Context, io streams) error {
	return c.send(ctx, io, http.MethodPost, "/v1/configuration/changes/"+url.PathEscape(c.ID)+"/revert", map[string]string{"reason": c.Reason}, nil)
}
