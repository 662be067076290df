package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type receiptsCmd struct {
	List   receiptsListCmd   `cmd:"" help:"List receipts, the newest first."`
	Show   receiptsShowCmd   `cmd:"" help:"Show all that one receipt says."`
	Replay receiptsReplayCmd `cmd:"" help:"Decide again what was decided, from what is archived, and compare."`
	Verify receiptsVerifyCmd `cmd:"" help:"Check that nobody has changed, taken away or added a receipt."`
	Rotate receiptsRotateCmd `cmd:"" help:"Sign with a new key from now on, which the one before brings into the chains."`
	Export receiptsExportCmd `cmd:"" help:"Print the entries as they are stored, one a line, the oldest first."`
}

// A moment is an instant, or a time before now.
type moment time.Time

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *moment) UnmarshalText(text []byte) error {
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, string(text)); err == nil {
			*m = moment(t)
			return nil
		}
	}
	var ago span
	if ago.UnmarshalText(text) != nil {
		return fmt.Errorf("%q: write how long ago, such as 7d or 12h, or an instant such as 2026-11-22 or 2026-11-22T15:04:05Z", text)
	}
	*m = moment(time.Now().Add(-time.Duration(ago)))
	return nil
}

// wanted says which receipts are wanted.
type wanted struct {
	Tenant  switchboard.TenantID `help:"Only those of this tenant." placeholder:"ID"`
	Task    switchboard.TaskID   `help:"Only those of this task." placeholder:"ID"`
	Tool    string               `help:"Only those of tools that fit, given as TOOL or SERVER/TOOL, in which * stands for any text." placeholder:"PATTERN"`
	Code    switchboard.Code     `help:"Only those with this code." placeholder:"SB-…"`
	Outcome receipt.Outcome      `help:"Only calls that ended so: ok, tool_error, server_error, refused, failed or unknown." placeholder:"WORD"`
	Kind    receipt.Kind         `help:"Only those of this kind: intent, call, decision, expand, collapse, admin, start, stop, key, lost or trim." placeholder:"WORD"`
	Node    string               `help:"Only those that this node has written." placeholder:"NAME"`
	Since   moment               `help:"Only those from then on: a time before now, such as 7d or 12h, or an instant." placeholder:"TIME"`
	Until   moment               `help:"Only those before then." placeholder:"TIME"`
}

func (w *wanted) query() (receipt.Query, error) {
	q := receipt.Query{
		Node: w.Node, Tenant: w.Tenant, Task: w.Task, Tool: w.Tool, Code: w.Code, Outcome: w.Outcome, Kind: w.Kind,
		Since: time.Time(w.Since), Until: time.Time(w.Until),
	}
	return q, q.Check()
}

type receiptsListCmd struct {
	kept
	wanted
	output
	Limit  int  `help:"Print at most this many." default:"50"`
	Follow bool `help:"Print what is written from now on, or --since, until interrupted." short:"f"`
}

// Run prints a line for each receipt.
func (c *receiptsListCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	q, err := c.query()
	switch {
	case err != nil:
		return usageError{err}
	case c.Limit < 1:
		return usageError{fmt.Errorf("--limit %d: want at least 1", c.Limit)}
	}
	s, err := c.open(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if c.Follow {
		for e, err := range receipt.Follow(ctx, s, q, followEvery) {
			if err != nil {
				return err
			}
			if err := c.write(io, &e); err != nil {
				return err
			}
		}
		return nil
	}
	q.Newest = true
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	n := 0
	for e, err := range receipt.List(ctx, s, q) {
		if err != nil {
			return err
		}
		if n++; n == 1 && !c.JSON {
			fmt.Fprintln(w, "TIME\tID\tKIND\tTENANT\tBY\tWHAT\tOUTCOME\tTOOK")
		}
		if !c.JSON {
			fmt.Fprintln(w, strings.Join(columns(&e), "\t"))
		} else if err := c.write(io, &e); err != nil {
			return err
		}
		if n == c.Limit {
			break
		}
	}
	if n == 0 {
		fmt.Fprintln(io.err, "switchboard: there are no such receipts")
	}
	return w.Flush()
}

// followEvery is how often new receipts are looked for.
const followEvery = 500 * time.Millisecond

// write prints one receipt, without waiting for others to stand in line with.
func (c *receiptsListCmd) write(io streams, e *receipt.Entry) error {
	if c.JSON {
		return writeEntry(io.raw, e)
	}
	_, err := fmt.Fprintln(io.out, strings.Join(columns(e), "  "))
	return err
}

// columns says in short what a receipt is of.
func columns(e *receipt.Entry) []string {
	r := &e.Receipt
	if e.Fault != nil {
		return []string{"?", e.ID(), "?", "", "", printable(e.Fault.Error(), maxSummary), "", ""}
	}
	what := r.Method
	switch {
	case r.Tool != "":
		what = string(r.Server) + "/" + r.Tool
	case r.Server != "":
		what = string(r.Server) + " " + r.Method
	case r.Resource.Scheme != "":
		what = string(r.Server) + " " + r.Resource.Scheme + "://" + r.Resource.Host + "/…"
	case len(r.Tools) > 0:
		what = strings.Join(r.Tools, " ")
	case r.Configuration != "":
		what += ": " + printable(r.Note, maxSummary)
	case r.Note != "":
		what = r.Note
	case r.Kind == receipt.Decision:
		what = strings.TrimSpace("task " + string(r.Task))
	case r.Kind == receipt.KeyKind:
		what = r.Key.Public
	case r.Kind == receipt.LostKind:
		what = fmt.Sprintf("%d receipts since %s", r.Lost.Receipts, r.Lost.Since.Format(time.DateTime))
	case r.Kind == receipt.TrimKind:
		what = fmt.Sprintf("begins with %d", r.Trim.First)
	}
	took := ""
	if r.Took.Total > 0 {
		took = (time.Duration(r.Took.Total) * time.Microsecond).String()
	}
	outcome := strings.TrimSpace(string(r.Outcome) + " " + string(r.Code))
	return []string{r.Time.Format("2006-01-02 15:04:05.000"), e.ID(), printable(string(r.Kind), 20), printable(string(r.Tenant), 40), printable(r.Principal.ID, 40), printable(what, maxSummary), printable(outcome, 40), took}
}

// writeEntry prints an entry as it is stored, with its id.
func writeEntry(w io.Writer, e *receipt.Entry) error {
	if e.Fault != nil { // it may not even be JSON
		return json.NewEncoder(w).Encode(map[string]string{"fault": e.Fault.Error(), "id": e.ID(), "stored": string(e.Raw)})
	}
	_, err := fmt.Fprintf(w, "{\"entry\":%s,\"id\":%q}\n", e.Raw, e.ID())
	return err
}

type receiptsShowCmd struct {
	kept
	output
	ID string `arg:"" help:"The receipt, given as NODE/NUMBER or NODE/TIME."`
}

// Run prints an entry. It exits 1 where there is none.
func (c *receiptsShowCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	if _, _, _, err := receipt.ParseID(c.ID); err != nil {
		return usageError{err}
	}
	s, err := c.open(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	e, err := receipt.Find(ctx, s, c.ID)
	switch {
	case errors.Is(err, receipt.ErrNone):
		fmt.Fprintln(io.err, "switchboard:", err)
		return errNo
	case err != nil:
		return err
	case c.JSON && e.Fault == nil:
		return json.NewEncoder(io.raw).Encode(struct {
			Entry    json.RawMessage        `json:"entry"`
			ID       string                 `json:"id"`
			Policies []replay.PolicyVersion `json:"policies,omitempty"`
		}{e.Raw, e.ID(), replay.PolicyVersions(ctx, s, &e.Receipt)})
	case c.JSON:
		return writeEntry(io.raw, &e)
	case e.Fault != nil:
		fmt.Fprintf(io.out, "%s cannot be read: %v\n%q\n", c.ID, e.Fault, e.Raw)
		return errNo
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(e.Raw, &all); err != nil {
		return err
	}
	text, err := json.MarshalIndent(all["receipt"], "", "  ")
	if err != nil {
		return err
	}
	signed := "not signed itself; the next signature of its chain covers it"
	if key, _, ok := strings.Cut(e.Signature, ":"); ok {
		signed = "signed with " + key
	}
	fmt.Fprintf(io.out, "%s\n%s\nentry    %s\nbehind   %s\n%s\n", e.ID(), text, e.Digest(), e.Prev, signed)
	for _, v := range replay.PolicyVersions(ctx, s, &e.Receipt) {
		writePolicyVersion(io, v)
	}
	return nil
}

// writePolicyVersion says which files the policy was that a receipt's decision was made by.
func writePolicyVersion(io streams, v replay.PolicyVersion) {
	fmt.Fprintf(io.out, "policy   %s\n", cmp.Or(v.Digest, "not archived"))
	for _, l := range v.Layers {
		fmt.Fprintf(io.out, "  the %s's layer %s\n", l.Layer, cmp.Or(switchboard.Digest(l.Why), l.Digest))
		for _, f := range l.Files {
			fmt.Fprintf(io.out, "    %s  %s  %d bytes\n", f.Digest, printable(f.Path, 200), f.Bytes)
		}
	}
}

type receiptsVerifyCmd struct {
	kept
	output
	Node       []string `help:"Only the chains of these nodes." placeholder:"NAME"`
	Checkpoint []string `help:"Checkpoints that were kept elsewhere: the file that is the anchor, or lines from the log." placeholder:"FILE"`
	Key        []string `help:"A public key with which a chain may begin; without it, any may." placeholder:"KEY"`
}

// Run checks all chains. It exits 1 where one is not as it was written, or there is
// none.
func (c *receiptsVerifyCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	o := receipt.VerifyOptions{Nodes: c.Node, Keys: c.Key}
	for _, name := range c.Checkpoint {
		f, err := os.Open(name)
		if err != nil {
			return usageError{err}
		}
		marks, err := receipt.ReadCheckpoints(f)
		_ = f.Close()
		if err != nil {
			return usageError{fmt.Errorf("%s: %w", name, err)}
		}
		o.Checkpoints = append(o.Checkpoints, marks...)
	}
	s, err := c.open(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	chains, err := receipt.Verify(ctx, s, o)
	if err != nil {
		return err
	}
	good := len(chains) > 0
	for i := range chains {
		good = good && chains[i].Fault == nil
	}
	switch {
	case c.JSON:
		if err := json.NewEncoder(io.raw).Encode(chains); err != nil {
			return err
		}
	case len(chains) == 0:
		fmt.Fprintln(io.err, "switchboard: there are no receipts")
	default:
		for i := range chains {
			writeChain(io.out, &chains[i], len(o.Checkpoints) > 0)
		}
	}
	if !good {
		return errNo
	}
	return nil
}

// writeChain says what was found of a chain.
func writeChain(w io.Writer, c *receipt.Chain, held bool) {
	if c.Fault != nil {
		fmt.Fprintf(w, "%s: NOT AS IT WAS WRITTEN: entry %d: %s: %s\n  %s before it are as written\n", c.Node, c.Fault.Seq, c.Fault.Rule, c.Fault.Why, count(c.Checked, "receipt"))
		return
	}
	fmt.Fprintf(w, "%s: as it was written: %d to %d, %s to %s\n  begins with key %s\n", c.Node, c.First, c.Last, c.Begins.Format(time.DateTime), c.Ends.Format(time.DateTime), cmp.Or(c.Key, "none"))
	for _, key := range c.Keys {
		fmt.Fprintln(w, "  then key", key)
	}
	if c.Trimmed != "" {
		fmt.Fprintf(w, "  what was before %d was let go; it ended with %s\n", c.First, c.Trimmed)
	}
	switch {
	case !held:
		fmt.Fprintln(w, "  held to no checkpoint: whether the end is gone, or all was signed anew, cannot be told")
	case c.Checkpoints == 0:
		fmt.Fprintln(w, "  none of the checkpoints is of it")
	default:
		fmt.Fprintf(w, "  %s of it fit\n", count(c.Checkpoints, "checkpoint"))
	}
}

type receiptsExportCmd struct {
	kept
	wanted
}

// Run prints the entries, for other programs.
func (c *receiptsExportCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	q, err := c.query()
	if err != nil {
		return usageError{err}
	}
	s, err := c.open(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	w := bufio.NewWriter(io.raw)
	for e, err := range receipt.List(ctx, s, q) {
		if err == nil {
			err = writeEntry(w, &e)
		}
		if err != nil {
			return errors.Join(err, w.Flush())
		}
	}
	return w.Flush()
}

type receiptsRotateCmd struct{ kept }

// Run puts a new key before the others. It needs no Switchboard that runs, and one that does
// finds the key by itself.
func (c *receiptsRotateCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	where, _, err := c.where(ctx, log)
	if err != nil {
		return err
	}
	path, isFile := strings.CutPrefix(where, "file:")
	if !isFile {
		return errors.New("the keys of replicas follow from cluster.secret: where that is another, they begin new chains")
	}
	if err := receipt.RotateKey(filepath.Join(filepath.Dir(path), receipt.LedgerKeyFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no key beside %s; it is made when something is first served", path)
		}
		return err
	}
	fmt.Fprintln(io.out, "a new key signs from now on: who serves takes it within seconds, and else whoever serves next")
	return nil
}

type receiptsReplayCmd struct {
	kept
	output
	ID     string               `arg:"" optional:"" help:"One receipt, given as NODE/NUMBER or NODE/TIME. Without it, all that was decided."`
	Since  span                 `help:"Replay what was decided for so long until now, such as 7d or 12h." default:"7d" placeholder:"TIME"`
	Tenant switchboard.TenantID `help:"Only decisions of this tenant." placeholder:"ID"`
}

// Run replays decisions. It exits 1 when one comes out otherwise, or none could be replayed.
func (c *receiptsReplayCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	s, err := c.open(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	var d *replay.Diff
	if c.ID != "" {
		d, err = replay.CompareReceipt(ctx, s, c.ID)
	} else {
		d, err = replay.Compare(ctx, s, time.Now().Add(-time.Duration(c.Since)), c.Tenant, &replay.Proposal{}, progress(io.err))
	}
	if err != nil {
		return err
	}
	if c.JSON {
		if err := json.NewEncoder(io.raw).Encode(d); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(io.out, "%s, %d replayed: %d the same to the byte\n", count(d.Decisions, "decision"), d.Replayed, d.Replayed-len(d.Broken))
		for _, b := range d.Broken {
			fmt.Fprintf(io.out, "  tenant %s, task %s%s: recorded is %s, and it comes out as %s: a fault of Switchboard, or of its records\n", b.Tenant, b.Task, ofWhat(b.Of), b.Recorded, cmp.Or(string(b.Replayed), "nothing"))
		}
		for _, not := range d.NotReplayed {
			fmt.Fprintf(io.out, "  %s not replayed: %s\n", count(not.Decisions, cmp.Or(not.Of, "decision")), not.Why)
		}
		if d.Decisions == 0 {
			fmt.Fprintln(io.out, "  it says nothing that was decided, or what it says is not archived")
		}
	}
	if len(d.Broken) > 0 || d.Replayed == 0 {
		return errNo
	}
	return nil
}
