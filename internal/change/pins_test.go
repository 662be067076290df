package change

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/lockfile"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// pinOf returns an active pin.
func pinOf(tool string) switchboard.AdmittedPin {
	return switchboard.AdmittedPin{
		PinID: switchboard.PinID{Server: "a", Kind: switchboard.PinTool, Name: tool}, Digest: "d1:" + strings.Repeat("0", 64),
		State: switchboard.LifeActive, By: "ops", At: time.Date(2026, 5, 3, 10, 0, 0, 0, time.UTC),
	}
}

// setPin returns the change that sets a pin.
func setPin(p switchboard.AdmittedPin) func([]byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) { return lockfile.SetAdmitted(text, p) }
}

func TestPinsAreChangedAsOtherFilesAre(t *testing.T) {
	w := newWorld(t)
	c, err := EditPins(t.Context(), w.Editor, ops, "looked at it", setPin(pinOf("x")))
	if err != nil {
		t.Fatal(err)
	}
	first := w.text(t, config.AdmittedFile)
	if !strings.Contains(first, "\na/x active ops 2026-05-03T10:00:00Z d1:") || w.reloads.Load() != 1 {
		t.Errorf("%d reloads; the file:\n%s", w.reloads.Load(), first)
	}
	r := w.ledger.written
	if len(r) != 2 || r[1].Outcome != receipt.OK || r[1].Change != (receipt.FileChange{File: config.AdmittedFile, Office: "operator", After: c.AfterDigest}) || r[1].Principal.ID != "ops" || r[1].Note != "looked at it" {
		t.Errorf("the receipts: %+v", r)
	}
	if c, err = EditPins(t.Context(), w.Editor, ops, "", setPin(pinOf("x"))); c != nil || err != nil || w.reloads.Load() != 1 {
		t.Errorf("what is there already: %+v, %v", c, err)
	}
	suspended := pinOf("x")
	suspended.State = switchboard.LifeSuspended
	if c, err = EditPins(t.Context(), w.Editor, ops, "", setPin(suspended)); err != nil || w.text(t, config.AdmittedFile) != strings.Replace(first, "active", "suspended", 1) {
		t.Errorf("%v\n%s", err, w.text(t, config.AdmittedFile))
	}
	for _, id := range []string{c.ID, "1"} {
		if id == "1" { // which made the file; the revert of the second change put its text back
			c.ID = id
		}
		if _, err := w.Revert(t.Context(), ops, c.ID, ""); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.text(t, config.AdmittedFile); got != "absent" {
		t.Errorf("after both reverts:\n%s", got)
	}
	if _, err := EditPins(t.Context(), w.Editor, ann, "", setPin(pinOf("x"))); reason(err) != "not found" {
		t.Errorf("an admin of a tenant: %v", err)
	}
	own := errors.New("not that one")
	if _, err := EditPins(t.Context(), w.Editor, ops, "", func([]byte) ([]byte, error) { return nil, own }); !errors.Is(err, own) {
		t.Errorf("a change that is not right any more: %v", err)
	}
	if _, err := EditPins(t.Context(), w.Editor, ops, "", func([]byte) ([]byte, error) { return []byte("rubbish\n"), nil }); reason(err) != "SB-CONF-001" || w.text(t, config.AdmittedFile) != "absent" {
		t.Errorf("rubbish: %v", err)
	}
	w.mode = config.EditNone
	if _, err := EditPins(t.Context(), w.Editor, ops, "", setPin(pinOf("x"))); reason(err) != "SB-CONF-003" || !strings.Contains(err.Error(), "+a/x active ops") {
		t.Errorf("where files are not changed: %v", err)
	}
}

// Of many people who accept different tools at once, all succeed. Of those who accept the same tool, one does.
func TestPeopleWhoAcceptAtOnceOverwriteNoOne(t *testing.T) {
	w := newWorld(t)
	var people sync.WaitGroup
	var won atomic.Int32
	taken := errors.New("somebody was first")
	for i := range 4 {
		people.Go(func() {
			if _, err := EditPins(t.Context(), w.Editor, ops, "", setPin(pinOf(fmt.Sprint("own-", i)))); err != nil {
				t.Error(err)
			}
		})
		people.Go(func() {
			p := pinOf("shared")
			p.By = fmt.Sprint("ops-", i)
			_, err := EditPins(t.Context(), w.Editor, ops, "", func(text []byte) ([]byte, error) {
				if strings.Contains(string(text), "a/shared ") {
					return nil, taken
				}
				return lockfile.SetAdmitted(text, p)
			})
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, taken) {
				t.Error(err)
			}
		})
	}
	people.Wait()
	pins, err := lockfile.Read(config.AdmittedFile, []byte(w.text(t, config.AdmittedFile)))
	if err != nil || len(pins) != 5 || won.Load() != 1 {
		t.Errorf("%d pins, %d won, %v", len(pins), won.Load(), err)
	}
}

// A person who edits the file by hand during a change is not overwritten.
func TestAnEditByHandDuringAChangeStays(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.dir, config.AdmittedFile)
	byHand, err := lockfile.SetAdmitted(nil, pinOf("by-hand"))
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	w.onLoad = func() {
		once.Do(func() {
			if err := os.WriteFile(file, byHand, 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := EditPins(t.Context(), w.Editor, ops, "", setPin(pinOf("x"))); err != nil {
		t.Fatal(err)
	}
	pins, err := lockfile.Read(config.AdmittedFile, []byte(w.text(t, config.AdmittedFile)))
	if err != nil || len(pins) != 2 {
		t.Errorf("%v, %v", pins, err)
	}
}

// The history would need hundreds of megabytes for the texts of such a file.
func TestTheHistoryKeepsNoLargeTexts(t *testing.T) {
	w := newWorld(t)
	pins := make([]switchboard.AdmittedPin, 10_000)
	for i := range pins {
		pins[i] = pinOf(fmt.Sprintf("tool_%06d", i))
	}
	large, err := lockfile.SetAdmitted(nil, pins...)
	if err != nil || len(large) <= maxKeptText {
		t.Fatalf("%d bytes, %v", len(large), err)
	}
	if _, err := EditPins(t.Context(), w.Editor, ops, "", func([]byte) ([]byte, error) { return large, nil }); err != nil {
		t.Fatal(err)
	}
	w.refuses.Store(true)
	if _, err := EditPins(t.Context(), w.Editor, ops, "", setPin(pinOf("x"))); reason(err) != "SB-CONF-001" || w.text(t, config.AdmittedFile) != string(large) {
		t.Errorf("a reload that is refused: %v; the file has %d bytes", err, len(w.text(t, config.AdmittedFile)))
	}
	c, err := w.Show(t.Context(), &ops, "1")
	if err != nil || c.Before != nil || c.After != nil || c.AfterDigest != digestOf(large) || c.Diff() != "" {
		t.Errorf("%v, %v", c.AfterDigest, err)
	}
	if _, err := w.Revert(t.Context(), ops, "1", ""); reason(err) != "SB-CONF-003" || w.text(t, config.AdmittedFile) != string(large) {
		t.Errorf("a revert: %v", err)
	}
	if err := w.Recover(context.Background()); err != nil {
		t.Error(err)
	}
}
