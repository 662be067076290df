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

// A Revision is a change that was made: of one file, or of several at once.
type Revision struct {
	ID      string           `json:"id"`
	When    time.Time        `json:"when"`
	By      string           `json:"by"`
	Auth    switchboard.Auth `json:"auth"`
	Reason  string           `json:"reason,omitempty"`
	Reverts string           `json:"reverts,omitempty"` // the id of a change
	Source  string           `json:"source,omitempty"`  // what it carries out, such as a proposal

	FileRevision // the first file

	More []FileRevision `json:"more,omitempty"` // the further files of the same change
}

// A FileRevision is what a Revision has made of one file.
type FileRevision struct {
	Path    string               `json:"path"`
	Office  switchboard.Office   `json:"office"`            // that allowed it
	Tenant  switchboard.TenantID `json:"tenant,omitempty"`  // whose file it is
	Receipt string               `json:"receipt,omitempty"` // the intent's

	BeforeDigest string `json:"before_digest,omitempty"` // SHA-256; "" means that there was no file
	AfterDigest  string `json:"after_digest,omitempty"`

	NewFolder bool `json:"new_folder,omitempty"` // the change has made the folder of the file

	// The whole texts; absent means no file. Both are absent if one is larger than maxKeptText: then the digests alone are kept.
	Before *string `json:"before,omitempty"`
	After  *string `json:"after,omitempty"`
}

// Files returns what the revision has made of each file. The caller may change it.
func (c *Revision) Files() []*FileRevision {
	all := []*FileRevision{&c.FileRevision}
	for i := range c.More {
		all = append(all, &c.More[i])
	}
	return all
}

// maxKeptText is the size of the largest text in the history, in bytes. Only admitted.lock can be larger.
const maxKeptText = document.MaxFileBytes

func (f *FileRevision) setTexts(before, after []byte) {
	f.BeforeDigest, f.AfterDigest = digestOf(before), digestOf(after)
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
	f.Before, f.After = text(before), text(after)
}

// hasTexts reports whether the texts are kept.
func (f *FileRevision) hasTexts() bool {
	return (f.Before != nil) == (f.BeforeDigest != "") && (f.After != nil) == (f.AfterDigest != "")
}

// bytesOf returns a kept text; nil if there was no file.
func bytesOf(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

// Diff returns the differences, unified; "" if the texts are not kept.
func (c *Revision) Diff() string {
	var all strings.Builder
	for _, f := range c.Files() {
		all.WriteString(DiffOf(f.Path, bytesOf(f.Before), bytesOf(f.After)))
	}
	return all.String()
}

// receiptOf returns the receipt of the change of a file, without an outcome.
func (c *Revision) receiptOf(f *FileRevision) receipt.Receipt {
	method := "change"
	if c.Reverts != "" {
		method = "revert"
	}
	return receipt.Receipt{
		Kind: receipt.Admin, Tenant: f.Tenant, Principal: receipt.Subject{ID: c.By, Auth: c.Auth}, Method: method, Note: c.Reason,
		Change: receipt.FileChange{File: f.Path, Office: f.Office, Before: f.BeforeDigest, After: f.AfterDigest, Source: c.Source},
	}
}

// begin writes a note that the change is being made, and then the intent of each file. A kill after the note is found by Recover.
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
	reach(&e.o, "noted")
	for _, f := range c.Files() {
		r := c.receiptOf(f)
		if f.Receipt, err = e.o.Ledger.Write(ctx, &r); err != nil { // the receipt may be stored later although the write has failed
			return err
		}
	}
	return nil
}

// end writes what became of a change, and keeps one that was made. It does nothing for a change that was never begun.
func (e *Editor) end(ctx context.Context, c *Revision, done bool, note string) error {
	if c.When.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.o.Timeout)
	defer cancel()
	// The receipts come first: until they are durable, the note stays, and the next start writes receipts.
	for _, f := range c.Files() {
		if f.Receipt == "" {
			continue
		}
		r := c.receiptOf(f)
		r.Of, r.Outcome = f.Receipt, receipt.OK
		if !done {
			r.Outcome, r.Code = receipt.Refused, switchboard.CodeConfig
		}
		if note != "" {
			r.Note = strings.TrimSpace(r.Note + "; " + note)
		}
		if _, err := e.o.Ledger.Write(ctx, &r); err != nil {
			what := "the change was not made"
			if done {
				what = "the change was made and is in force"
			}
			return switchboard.Unavailable(what+", but the receipts do not say so yet; the next start writes it", err)
		}
	}
	reach(&e.o, "told")
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
		if !permitsRevision(e, by, &c) {
			continue
		}
		for _, f := range c.Files() {
			f.Before, f.After = nil, nil
		}
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
	if !permitsRevision(e, by, &c) {
		return nil, missing
	}
	return &c, nil
}

// permitsRevision reports whether the officer may change each file of the revision.
func permitsRevision(e *Editor, by *switchboard.Officer, c *Revision) bool {
	return !slices.ContainsFunc(c.Files(), func(f *FileRevision) bool {
		_, _, err := e.Permit(by, f.Path)
		return err != nil
	})
}

// Revert makes a change that restores what the files were before the change id. It is refused (SB-CONF-002) if one has been changed since.
func (e *Editor) Revert(ctx context.Context, by switchboard.Officer, id, reason string) (*Revision, error) {
	c, err := e.Show(ctx, &by, id)
	if err != nil {
		return nil, err
	}
	w := Wish{By: by, Reason: reason, Reverts: c.ID}
	for i, f := range c.Files() {
		if !f.hasTexts() {
			return nil, &switchboard.Error{Code: switchboard.CodeNotChangedHere, Text: fmt.Sprintf("the texts of change %s are not kept, because the file is larger than %d bytes; undo it by a new change", c.ID, maxKeptText)}
		}
		back := FileWish{Path: f.Path, Text: bytesOf(f.Before), DropFolder: f.NewFolder}
		if f.After != nil {
			back.IfMatch = ETagOf([]byte(*f.After))
		}
		if i == 0 {
			w.FileWish = back
		} else {
			w.More = append(w.More, back)
		}
	}
	return e.Apply(ctx, w)
}

// Recover ends a change that a killed process has begun: it finishes a change of several files, looks which content each file has, and writes the receipts that say so.
func (e *Editor) Recover(ctx context.Context) error {
	if e.o.File == "" {
		return nil
	}
	release, err := Hold(ctx, e)
	if err != nil {
		return err
	}
	defer release()
	return RecoverHeld(ctx, e)
}

// RecoverHeld is Recover for a caller that has the right to change the files; see Hold.
func RecoverHeld(ctx context.Context, e *Editor) error {
	if err := (severalFiles{e}).finish(ctx); err != nil {
		return err
	}
	v, err := e.o.Store.Value(ctx, store.Key{Group: Group, Name: e.pending()})
	if err != nil || v.Version == 0 {
		return err
	}
	var c Revision
	if err := json.Unmarshal(v.Data, &c); err != nil {
		_, err := e.o.Store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{{Name: e.pending(), Was: v.Version}}, Durable: true})
		return err
	}
	made, unmade := 0, 0
	for _, f := range c.Files() {
		if f.Receipt, err = e.o.Intent(ctx, c.receiptOf(f), c.When); err != nil {
			return err
		}
		text, err := e.read(f.Path)
		if err != nil {
			return err
		}
		switch digestOf(text) {
		case f.AfterDigest:
			made++
		case f.BeforeDigest:
			unmade++
		}
	}
	switch len(c.More) + 1 {
	case made:
		return e.end(ctx, &c, true, "found at the next start: the change was made")
	case unmade:
		return e.end(ctx, &c, false, "found at the next start: the change was not made")
	}
	return e.end(ctx, &c, false, "found at the next start: a file has neither the old content nor the new one; somebody has changed it since")
}
