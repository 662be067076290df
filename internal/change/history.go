package change

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Group is the group of all values of this package in the store.
const Group = "changes"

// The names of the values: the changes by number, the number of the last one, and the change that is being made.
const (
	prefixChange  = "change/"
	nameLast      = "last"
	prefixPending = "pending/"
)

// maxKept is how many changes are kept.
const maxKept = 50

// A Revision is a change of a file that was made.
type Revision struct {
	ID      string               `json:"id"`
	When    time.Time            `json:"when"`
	By      string               `json:"by"`
	Auth    switchboard.Auth     `json:"auth"`
	Office  switchboard.Office   `json:"office"`           // that allowed it
	Tenant  switchboard.TenantID `json:"tenant,omitempty"` // whose file it is
	Path    string               `json:"path"`
	Reason  string               `json:"reason,omitempty"`
	Reverts string               `json:"reverts,omitempty"` // the id of a change
	Receipt string               `json:"receipt,omitempty"` // the intent's

	BeforeDigest string `json:"before_digest,omitempty"` // SHA-256; "" means that there was no file
	AfterDigest  string `json:"after_digest,omitempty"`

	// The whole texts; absent means no file. Both are absent if one is larger than maxKeptText: then the digests alone are kept.
	Before *string `json:"before,omitempty"`
	After  *string `json:"after,omitempty"`
}

// maxKeptText is the size of the largest text in the history, in bytes. Only admitted.lock can be larger.
const maxKeptText = document.MaxFileBytes

func (c *Revision) setTexts(before, after []byte) {
	c.BeforeDigest, c.AfterDigest = digestOf(before), digestOf(after)
	if len(before) > maxKeptText || len(after) > maxKeptText {
		return
	}
	text := func(b []byte) *string {
		if b == nil {
			return nil
		}
		s := string(b)
		return &s
	}
	c.Before, c.After = text(before), text(after)
}

// hasTexts reports whether the texts are kept.
func (c *Revision) hasTexts() bool {
	return (c.Before != nil) == (c.BeforeDigest != "") && (c.After != nil) == (c.AfterDigest != "")
}

// Diff returns the difference, unified; "" if the texts are not kept.
func (c *Revision) Diff() string {
	bytes := func(s *string) []byte {
		if s == nil {
			return nil
		}
		return []byte(*s)
	}
	return DiffOf(c.Path, bytes(c.Before), bytes(c.After))
}

// receiptOf returns the receipt of a change, without an outcome.
func (c *Revision) receiptOf() receipt.Receipt {
	method := "change"
	if c.Reverts != "" {
		method = "revert"
	}
	return receipt.Receipt{
		Kind: receipt.Admin, Tenant: c.Tenant, Principal: receipt.Subject{ID: c.By, Auth: c.Auth}, Method: method, Note: c.Reason,
		Change: receipt.FileChange{File: c.Path, Office: c.Office, Before: c.BeforeDigest, After: c.AfterDigest},
	}
}

// begin writes a note that the change is being made, and then the intent. A kill after the note is found by Recover.
func (e *Editor) begin(ctx context.Context, c *Revision) error {
	ctx, cancel := context.WithTimeout(ctx, e.o.Timeout)
	defer cancel()
	c.When = time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err := e.o.Store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{{Name: e.pending(), Was: store.Any, Data: text}}, Durable: true}); err != nil {
		return switchboard.Unavailable("the change cannot be noted, so nothing was written", err)
	}
	if !e.o.Ledger.Durable() {
		return nil
	}
	r := c.receiptOf()
	c.Receipt, err = e.o.Ledger.Write(ctx, &r) // the receipt may be stored later although the write has failed
	return err
}

// end writes what became of a change, and keeps one that was made. It does nothing for a change that was never begun.
func (e *Editor) end(ctx context.Context, c *Revision, done bool, note string) error {
	if c.When.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.o.Timeout)
	defer cancel()
	// The receipt comes first: until it is durable, the note stays, and the next start writes a receipt.
	if c.Receipt != "" {
		r := c.receiptOf()
		r.Of, r.Outcome = c.Receipt, receipt.OK
		if !done {
			r.Outcome, r.Code = receipt.Refused, switchboard.CodeConfig
		}
		if note != "" {
			r.Note = strings.TrimSpace(r.Note + "; " + note)
		}
		if _, err := e.o.Ledger.Write(ctx, &r); err != nil {
			return switchboard.Unavailable("what became of the change is not in the receipts yet; the next start writes it", err)
		}
	}
	err := e.settle(ctx, c, done)
	for range maxConflicts {
		if !errors.Is(err, store.ErrConflict) {
			break
		}
		err = e.settle(ctx, c, done) // another replica has kept a change of its own files
	}
	if err != nil && done {
		return switchboard.Unavailable("the change was made and is in force, but the history cannot keep it", err)
	}
	return nil
}

// maxConflicts is how often a change is put into the history again because others were first.
const maxConflicts = 10

// settle deletes the note that the change is being made, and keeps it if it was made.
func (e *Editor) settle(ctx context.Context, c *Revision, done bool) error {
	writes := []store.Write{{Name: e.pending(), Was: store.Any}}
	if done {
		var err error
		if writes, err = e.keep(ctx, c, writes); err != nil {
			return err
		}
	}
	_, err := e.o.Store.Apply(ctx, store.Change{Group: Group, Writes: writes, Durable: true})
	return err
}

// pending returns the name of the note that a change of these files is being made.
func (e *Editor) pending() string { return prefixPending + digestOf([]byte(e.o.Place)) }

// keep adds the writes that put the change into the history.
func (e *Editor) keep(ctx context.Context, c *Revision, writes []store.Write) ([]store.Write, error) {
	last, err := e.o.Store.Value(ctx, store.Key{Group: Group, Name: nameLast})
	if err != nil {
		return nil, err
	}
	n, _ := strconv.ParseInt(string(last.Data), 10, 64)
	n++
	c.ID = strconv.FormatInt(n, 10)
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	writes = append(writes, store.Write{Name: nameLast, Was: last.Version, Data: []byte(c.ID)}, store.Write{Name: nameOf(n), Was: store.Any, Data: text})
	if n > maxKept {
		writes = append(writes, store.Write{Name: nameOf(n - maxKept), Was: store.Any})
	}
	return writes, nil
}

func nameOf(n int64) string { return fmt.Sprintf("%s%012d", prefixChange, n) }

// History returns the changes that are kept and that the officer may see, the newest first, without their texts.
func (e *Editor) History(ctx context.Context, by *switchboard.Officer) ([]Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.Timeout)
	defer cancel()
	rows, err := e.o.Store.List(ctx, Group)
	if err != nil {
		return nil, switchboard.Unavailable("the history cannot be read", err)
	}
	all := []Revision{}
	for _, row := range slices.Backward(rows) {
		var c Revision
		if !strings.HasPrefix(row.Name, prefixChange) || json.Unmarshal(row.Data, &c) != nil {
			continue
		}
		if _, _, err := e.Permit(by, c.Path); err != nil {
			continue
		}
		c.Before, c.After = nil, nil
		all = append(all, c)
	}
	return all, nil
}

// Show returns one change, with its texts.
func (e *Editor) Show(ctx context.Context, by *switchboard.Officer, id string) (*Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.Timeout)
	defer cancel()
	missing := &NotFoundError{Text: fmt.Sprintf("no change %.20q is kept; the last %d are", id, maxKept)}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n < 1 {
		return nil, missing
	}
	v, err := e.o.Store.Value(ctx, store.Key{Group: Group, Name: nameOf(n)})
	if err != nil {
		return nil, switchboard.Unavailable("the history cannot be read", err)
	}
	var c Revision
	if v.Version == 0 || json.Unmarshal(v.Data, &c) != nil {
		return nil, missing
	}
	if _, _, err := e.Permit(by, c.Path); err != nil {
		return nil, missing
	}
	return &c, nil
}

// Revert makes a change that restores what the file was before the change id. It is refused (SB-CONF-002) if the file has been changed since.
func (e *Editor) Revert(ctx context.Context, by switchboard.Officer, id, reason string) (*Revision, error) {
	c, err := e.Show(ctx, &by, id)
	if err != nil {
		return nil, err
	}
	if !c.hasTexts() {
		return nil, &switchboard.Error{Code: switchboard.CodeNotChangedHere, Text: fmt.Sprintf("the texts of change %s are not kept, because the file is larger than %d bytes; undo it by a new change", c.ID, maxKeptText)}
	}
	w := Wish{Path: c.Path, By: by, Reason: reason, Reverts: c.ID}
	if c.Before != nil {
		w.Text = []byte(*c.Before)
	}
	if c.After != nil {
		w.IfMatch = ETagOf([]byte(*c.After))
	}
	return e.Apply(ctx, w)
}

// Recover ends a change that a killed process has begun: it looks which content the file has, and writes the receipt that says so.
func (e *Editor) Recover(ctx context.Context) error {
	if e.o.File == "" {
		return nil
	}
	release, err := e.o.Lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	v, err := e.o.Store.Value(ctx, store.Key{Group: Group, Name: e.pending()})
	if err != nil || v.Version == 0 {
		return err
	}
	var c Revision
	if err := json.Unmarshal(v.Data, &c); err != nil {
		_, err := e.o.Store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{{Name: e.pending(), Was: v.Version}}, Durable: true})
		return err
	}
	if c.Receipt, err = e.o.Intent(ctx, c.receiptOf(), c.When); err != nil {
		return err
	}
	text, err := e.read(c.Path)
	if err != nil {
		return err
	}
	switch digestOf(text) {
	case c.AfterDigest:
		return e.end(ctx, &c, true, "found at the next start: the change was made")
	case c.BeforeDigest:
		return e.end(ctx, &c, false, "found at the next start: the change was not made")
	}
	return e.end(ctx, &c, false, "found at the next start: the file has neither the old content nor the new one; somebody has changed it since")
}
