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
	"net/http"
	"net/url"
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
	Show   receiptsShowCmd   `cmd:"" help:"Show everything in one receipt."`
	Replay receiptsReplayCmd `cmd:"" help:"Replay recorded decisions from the archive, and compare the results."`
	Verify receiptsVerifyCmd `cmd:"" help:"Check that no receipt was changed, removed or added."`
	Rotate receiptsRotateCmd `cmd:"" help:"Sign with a new key from now on. The previous key signs its introduction in each chain."`
	Export receiptsExportCmd `cmd:"" help:"Print the entries as they are stored, one a line, the oldest first."`
}

// A pastTime is an instant, or a duration before now.
type pastTime time.Time

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *pastTime) UnmarshalText(text []byte) error {
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, string(text)); err == nil {
			*m = pastTime(t)
			return nil
		}
	}
	var ago dayDuration
	if ago.UnmarshalText(text) != nil {
		return fmt.Errorf("%q: write how long ago, such as 7d or 12h, or an instant such as 2026-11-22 or 2026-11-22T15:04:05Z", text)
	}
	*m = pastTime(time.Now().Add(-time.Duration(ago)))
	return nil
}

// receiptFilter selects receipts.
type receiptFilter struct {
	Tenant  switchboard.TenantID `help:"Only those of this tenant." placeholder:"ID"`
	Task    switchboard.TaskID   `help:"Only those of this task." placeholder:"ID"`
	Tool    string               `help:"Only those of matching tools, given as TOOL or SERVER/TOOL; * stands for any text." placeholder:"PATTERN"`
	Code    switchboard.Code     `help:"Only those with this code." placeholder:"SB-…"`
	Outcome receipt.CallOutcome  `help:"Only calls with this outcome: ok, tool_error, server_error, refused, failed or unknown." placeholder:"WORD"`
	Kind    receipt.Kind         `help:"Only those of this kind: intent, call, decision, expand, collapse, admin, ask, decide, pin, start, stop, key, lost or trim." placeholder:"WORD"`
	Node    string               `help:"Only those that this node wrote." placeholder:"NAME"`
	Since   pastTime             `help:"Only those since TIME: a time before now, such as 7d or 12h, or an instant." placeholder:"TIME"`
	Until   pastTime             `help:"Only those before TIME." placeholder:"TIME"`
}

func (w *receiptFilter) parseQuery() (receipt.Query, error) {
	q := receipt.Query{
		Node: w.Node, Tenant: w.Tenant, Task: w.Task, Tool: w.Tool, Code: w.Code, Outcome: w.Outcome, Kind: w.Kind,
		Since: time.Time(w.Since), Until: time.Time(w.Until),
	}
	return q, q.Check()
}

type receiptsListCmd struct {
	storeFlags
	receiptFilter
	outputFlags
	Limit  int  `help:"Print at most this many." default:"50"`
	Follow bool `help:"Print new receipts from now on, or since --since, until interrupted." short:"f"`
}

// Run prints one line per receipt.
func (c *receiptsListCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	q, err := c.parseQuery()
	switch {
	case err != nil:
		return usageError{err}
	case c.Limit < 1:
		return usageError{fmt.Errorf("--limit %d: want at least 1", c.Limit)}
	}
	s, err := c.openStore(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if c.Follow {
		for e, err := range receipt.Follow(ctx, s, q, followInterval) {
			if err != nil {
				return err
			}
			if err := c.writeReceipt(io, &e); err != nil {
				return err
			}
		}
		return nil
	}
	q.NewestFirst = true
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
			fmt.Fprintln(w, strings.Join(receiptColumns(&e), "\t"))
		} else if err := c.writeReceipt(io, &e); err != nil {
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

// followInterval is the interval between two looks for new receipts.
const followInterval = 500 * time.Millisecond

// writeReceipt prints one receipt at once, without aligned columns.
func (c *receiptsListCmd) writeReceipt(io streams, e *receipt.ChainEntry) error {
	if c.JSON {
		return writeEntry(io.raw, e)
	}
	_, err := fmt.Fprintln(io.out, strings.Join(receiptColumns(e), "  "))
	return err
}

// receiptColumns returns the columns that describe a receipt in short.
func receiptColumns(e *receipt.ChainEntry) []string {
	r := &e.Receipt
	if e.Fault != nil {
		return []string{"?", e.ID(), "?", "", "", printable(e.Fault.Error(), maxSummary), "", ""}
	}
	what := r.Method
	switch {
	case r.Kind == receipt.Pin:
		what = string(r.Server) + ": " + r.Note
	case r.Tool != "":
		what = string(r.Server) + "/" + r.Tool
	case r.Server != "":
		what = string(r.Server) + " " + r.Method
	case r.Resource.Scheme != "":
		what = string(r.Server) + " " + r.Resource.Scheme + "://" + r.Resource.Host + "/…"
	case len(r.Tools) > 0:
		what = strings.Join(r.Tools, " ")
	case r.Change.File != "":
		what = strings.TrimSpace(r.Method + " " + printable(r.Change.File, maxSummary) + " " + printable(r.Note, maxSummary))
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
func writeEntry(w io.Writer, e *receipt.ChainEntry) error {
	_, err := w.Write(e.AppendLine(nil))
	return err
}

type receiptsShowCmd struct {
	storeFlags
	outputFlags
	ID string `arg:"" help:"The receipt, given as NODE/NUMBER or NODE/TIME."`
}

// Run prints an entry. It exits 1 if the entry does not exist.
func (c *receiptsShowCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	if _, _, _, err := receipt.ParseID(c.ID); err != nil {
		return usageError{err}
	}
	s, err := c.openStore(ctx, log, false)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	e, err := receipt.Find(ctx, s, c.ID)
	switch {
	case errors.Is(err, receipt.ErrNotFound):
		fmt.Fprintln(io.err, "switchboard:", err)
		return errNegative
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
		return errNegative
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

// writePolicyVersion prints the files of the policy that made a receipt's decision.
func writePolicyVersion(io streams, v replay.PolicyVersion) {
	fmt.Fprintf(io.out, "policy   %s\n", cmp.Or(v.Digest, "not archived"))
	for _, l := range v.Layers {
		fmt.Fprintf(io.out, "  the %s's layer %s\n", l.Layer, cmp.Or(switchboard.Digest(l.Why), l.Digest))
		for _, f := range l.Files {
			fmt.Fprintf(io.out, "    %s  %s  %d bytes\n", f.Digest, printable(f.Path, 200), f.Bytes)
		}
	}
}

// auditFlags say where the receipts are: in a store, or at a Switchboard elsewhere.
type auditFlags struct {
	storeFlags
	URL string `name:"url" help:"Let the Switchboard at URL read its receipts. Without it, this command reads the store itself, which trusts no other process." placeholder:"URL"`
}

// target returns the Switchboard that reads the receipts; nil means that this command does.
func (f *auditFlags) target() (*taskTarget, error) {
	switch {
	case f.URL == "":
		return nil, nil
	case f.Store != "":
		return nil, usageError{errors.New("give --url or --store: the receipts are read at one place")}
	}
	at := locationFlags{URL: f.URL, Config: f.Config, Data: f.Data}
	return at.asTarget(), nil
}

type receiptsVerifyCmd struct {
	auditFlags
	outputFlags
	Node       []string `help:"Only the chains of these nodes." placeholder:"NAME"`
	Checkpoint []string `help:"Checkpoints from outside the store: the anchor file, or lines of the log output." placeholder:"FILE"`
	Key        []string `help:"A public key that a chain may begin with; without it, any key." placeholder:"KEY"`
}

// Run verifies all chains. It exits 1 if a chain was changed after it was written, or if there is
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
	chains, err := c.verify(ctx, io, log, o)
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
		return errNegative
	}
	return nil
}

// A verifyFunc does one part of a verification. See receipt.VerifyPart.
type verifyFunc func(o receipt.VerifyOptions, after string) (*receipt.VerifiedPart, error)

// verify verifies the chains, part by part, by the Switchboard at the URL or with the store.
func (c *receiptsVerifyCmd) verify(ctx context.Context, io streams, log *slog.Logger, o receipt.VerifyOptions) ([]receipt.ChainReport, error) {
	t, err := c.target()
	if err != nil {
		return nil, err
	}
	if t != nil {
		if len(o.Checkpoints) > maxSentCheckpoints {
			return nil, usageError{fmt.Errorf("these are %d checkpoints, and a Switchboard takes %d at once; give the newest ones, or verify where the store is, without --url", len(o.Checkpoints), maxSentCheckpoints)}
		}
		return verifyParts(o, askedVerifier(ctx, t), progressPrinter(io.err, "verified"))
	}
	s, err := c.openStore(ctx, log, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	return verifyParts(o, func(o receipt.VerifyOptions, after string) (*receipt.VerifiedPart, error) {
		return receipt.VerifyPart(ctx, s, o, after, verifyPartTime)
	}, progressPrinter(io.err, "verified"))
}

const (
	// verifyPartTime is how long a part of a verification takes, and so how often its progress is printed.
	verifyPartTime = 200 * time.Millisecond

	// maxSentCheckpoints is how many checkpoints the admin API takes in one request.
	maxSentCheckpoints = 10_000
)

// verifyParts verifies part by part until the end. progress may be nil.
func verifyParts(o receipt.VerifyOptions, verify verifyFunc, progress func(done, of int)) ([]receipt.ChainReport, error) {
	chains := []receipt.ChainReport{}
	for after := ""; ; {
		part, err := verify(o, after)
		if err != nil {
			return nil, err
		}
		chains = append(chains, part.Chains...)
		if progress != nil && (after != "" || part.Next != "") {
			progress(part.Looked, part.Of)
		}
		if part.Next == "" {
			return chains, nil
		}
		if part.Next == after {
			return nil, errors.New("the verification makes no progress: the server returned the same next twice")
		}
		after = part.Next
	}
}

// askedVerifier returns a verifier that asks a running Switchboard.
func askedVerifier(ctx context.Context, t *taskTarget) verifyFunc {
	return func(o receipt.VerifyOptions, after string) (*receipt.VerifiedPart, error) {
		answer, err := t.askPatiently(ctx, http.MethodPost, "/v1/receipts/verify", struct {
			Nodes       []string             `json:"nodes,omitempty"`
			Keys        []string             `json:"keys,omitempty"`
			Checkpoints []receipt.Checkpoint `json:"checkpoints,omitempty"`
			After       string               `json:"after,omitempty"`
		}{o.Nodes, o.Keys, o.Checkpoints, after})
		if err != nil {
			return nil, err
		}
		part := &receipt.VerifiedPart{}
		return part, json.Unmarshal(answer.body, part)
	}
}

// writeChain prints the result for one chain.
func writeChain(w io.Writer, c *receipt.ChainReport, held bool) {
	if c.Fault != nil {
		fmt.Fprintf(w, "%s: NOT AS IT WAS WRITTEN: entry %d: %s: %s\n  %s before it are as written\n", c.Node, c.Fault.Seq, c.Fault.Rule, c.Fault.Why, count(c.Checked, "receipt"))
		return
	}
	fmt.Fprintf(w, "%s: as it was written: %d to %d, %s to %s\n  begins with key %s\n", c.Node, c.First, c.Last, c.Begins.Format(time.DateTime), c.Ends.Format(time.DateTime), cmp.Or(c.Key, "none"))
	for _, key := range c.Keys {
		fmt.Fprintln(w, "  then key", key)
	}
	if c.Trimmed != "" {
		fmt.Fprintf(w, "  the entries before %d were deleted; the last of them was %s\n", c.First, c.Trimmed)
	}
	switch {
	case !held:
		fmt.Fprintln(w, "  held to no checkpoint: it is unknown whether entries at the end are missing, or all were signed again")
	case c.Checkpoints == 0:
		fmt.Fprintln(w, "  no checkpoint belongs to it")
	default:
		fmt.Fprintf(w, "  %s of it fit\n", count(c.Checkpoints, "checkpoint"))
	}
}

type receiptsExportCmd struct {
	auditFlags
	receiptFilter
}

// Run prints the entries, for other programs.
func (c *receiptsExportCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	q, err := c.parseQuery()
	if err != nil {
		return usageError{err}
	}
	t, err := c.target()
	if err != nil {
		return err
	}
	if t != nil {
		return exportFrom(ctx, io, t, &q)
	}
	s, err := c.openStore(ctx, log, false)
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

// exportFrom prints the entries that a running Switchboard exports.
func exportFrom(ctx context.Context, out streams, t *taskTarget, q *receipt.Query) error {
	values := url.Values{}
	for name, value := range map[string]string{
		"tenant": string(q.Tenant), "task": string(q.Task), "tool": q.Tool, "code": string(q.Code), "outcome": string(q.Outcome), "kind": string(q.Kind), "node": q.Node,
		"since": instantText(q.Since), "until": instantText(q.Until),
	} {
		if value != "" {
			values.Set(name, value)
		}
	}
	resp, err := t.openAdmin(ctx, "/v1/receipts/export?"+values.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(out.raw, resp.Body); err != nil {
		return unreachableError{fmt.Errorf("the export has broken off, so what was printed is not complete: %w", err)}
	}
	return nil
}

type receiptsRotateCmd struct{ storeFlags }

// Run adds a new key before the others. No Switchboard needs to run; a running one finds the key by
// itself.
func (c *receiptsRotateCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	where, _, err := c.storeURL(ctx, log)
	if err != nil {
		return err
	}
	path, isFile := strings.CutPrefix(where, "file:")
	if !isFile {
		return errors.New("the keys of replicas follow from cluster.secret: where that is another, they begin new chains")
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no store %s, and so no key beside it; both are made when something is first served", path)
	}
	key := filepath.Join(filepath.Dir(path), receipt.LedgerKeyFile)
	_, missing := os.Stat(key)
	if err := receipt.RotateKey(key); err != nil {
		return err
	}
	if missing != nil {
		fmt.Fprintf(io.out, "%s was missing, and has a new secret now: receipts begin new chains beside the old ones, and a call with an idempotency key from before can run once more\n", key)
		return nil
	}
	fmt.Fprintln(io.out, "a new key signs from now on: a running Switchboard uses it within seconds, else the next one that starts")
	return nil
}

type receiptsReplayCmd struct {
	auditFlags
	outputFlags
	ID     string               `arg:"" optional:"" help:"One receipt, given as NODE/NUMBER or NODE/TIME. Without it, all decisions."`
	Since  dayDuration          `help:"Replay the decisions of the last TIME, such as 7d or 12h." default:"7d" placeholder:"TIME"`
	Tenant switchboard.TenantID `help:"Only decisions of this tenant." placeholder:"ID"`
}

// Run replays decisions. It exits 1 if a result differs from its record, or if none could be replayed.
func (c *receiptsReplayCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	d, err := c.replay(ctx, io, log)
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
			fmt.Fprintf(io.out, "  tenant %s, task %s%s: recorded %s, replayed %s: a defect in Switchboard or in its records\n", b.Tenant, b.Task, kindSuffix(b.Of), b.Recorded, cmp.Or(string(b.Replayed), "nothing"))
		}
		for _, not := range d.NotReplayed {
			fmt.Fprintf(io.out, "  %s not replayed: %s\n", count(not.Decisions, cmp.Or(not.Of, "decision")), not.Why)
		}
		if d.Decisions == 0 {
			none := "no decision was recorded in this time"
			if c.ID != "" {
				none = "the receipt records no decision"
			}
			fmt.Fprintln(io.out, "  "+none)
		}
		if !d.Looked.Complete() {
			fmt.Fprintf(io.out, "Switchboard has %s. To replay all of them, run this command where the store is, without --url.\n", lookedText(d.Looked))
		}
	}
	if len(d.Broken) > 0 || d.Replayed == 0 {
		return errNegative
	}
	return nil
}

// replay replays by the Switchboard at the URL, or with the store.
func (c *receiptsReplayCmd) replay(ctx context.Context, io streams, log *slog.Logger) (*replay.Diff, error) {
	since, progress := time.Now().Add(-time.Duration(c.Since)), progressPrinter(io.err, "replayed")
	t, err := c.target()
	if err != nil {
		return nil, err
	}
	if t != nil {
		return (&servedDiff{t, c.Tenant, c.ID}).compare(ctx, since, &replay.Proposal{}, progress)
	}
	s, err := c.openStore(ctx, log, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	if c.ID != "" {
		return replay.CompareWithin(ctx, s, replay.Bounds{Tenant: c.Tenant, Receipt: c.ID}, &replay.Proposal{}, nil)
	}
	return replay.Compare(ctx, s, since, c.Tenant, &replay.Proposal{}, progress)
}
