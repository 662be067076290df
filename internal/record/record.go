// Package record keeps, for a while and on this machine, what was decided and
// what it was decided from, so that it can be decided again under other rules.
//
// It serves whoever is about to change a policy, and is no evidence: where the
// disk is slower than decisions, full or read-only, records are dropped and
// counted; nobody waits for them, and they are not signed.
//
// Its folder holds
//
//	log/<instant>-<random>.jsonl    an Entry a line, in the order of their times
//	archive/<digest>.gz             what entries refer to, each text once
//
// Each process appends to a file of its own, so that only the last line of a
// file can be cut off. Whenever an entry refers to an archive, that is touched:
// so whatever was last touched before the oldest file of the log began is
// referred to by none, and goes with the file before.
package record

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An Entry is the record of one decision.
type Entry struct {
	Time time.Time `json:"time"`

	// Of is whose decision it is, and Same the digest of what it says but for
	// the instant: the same again, within a day, is not written.
	Of   string             `json:"of"`
	Same switchboard.Digest `json:"same"`

	// Digest is of Decision, which is in canonical form.
	Digest   switchboard.Digest `json:"digest"`
	Decision json.RawMessage    `json:"decision"`

	// Archives say by which texts it was decided.
	Archives map[string]switchboard.Digest `json:"archives"`
}

// An Archive is a text that entries refer to.
type Archive struct {
	Digest switchboard.Digest
	Data   func() []byte // the text; called where it is not there yet
}

const (
	logDir     = "log"
	archiveDir = "archive"
	logExt     = ".jsonl"
	archiveExt = ".gz"

	// maxArchive bounds what is unpacked of one archive.
	maxArchive = 1 << 30
)

// Read returns what was recorded since then, the oldest first, and how many
// lines cannot be read: a process that was killed may leave one. A folder
// without records has none.
func Read(dir string, since time.Time) (entries []Entry, damaged int, err error) {
	names, err := segments(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		file := filepath.Join(dir, logDir, name)
		if info, err := os.Stat(file); err != nil || info.ModTime().Before(since) {
			continue // it has gone meanwhile, or ended before
		}
		bad, err := readSegment(file, func(e Entry) {
			if !e.Time.Before(since) {
				entries = append(entries, e)
			}
		})
		if err != nil {
			return nil, 0, err
		}
		damaged += bad
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	return entries, damaged, nil
}

func readSegment(file string, each func(Entry)) (damaged int, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read from
	for lines := bufio.NewReaderSize(f, 1<<16); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e Entry
			if json.Unmarshal(line, &e) != nil || canonical.Sum(e.Decision) != e.Digest {
				damaged++
			} else {
				each(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return damaged, nil
		} else if err != nil {
			return damaged, err
		}
	}
}

// ReadArchive returns the text of that digest.
func ReadArchive(dir string, d switchboard.Digest) ([]byte, error) {
	f, err := os.Open(archiveFile(dir, d))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read from
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxArchive))
	if err != nil {
		return nil, err
	}
	if canonical.Sum(text) != d {
		return nil, fmt.Errorf("archive %s: it holds something else", d)
	}
	return text, nil
}

func archiveFile(dir string, d switchboard.Digest) string {
	_, digits, _ := strings.Cut(string(d), ":")
	return filepath.Join(dir, archiveDir, filepath.Base(digits)+archiveExt)
}

// segments returns the names of the log's files, the oldest first.
func segments(dir string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, logDir)) // sorted
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if _, ok := began(e.Name()); ok {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// began returns when a file of the log was begun, which its name says.
func began(name string) (time.Time, bool) {
	instant, _, ok := strings.Cut(name, "-")
	if !ok || filepath.Ext(name) != logExt {
		return time.Time{}, false
	}
	t, err := time.Parse(segmentLayout, instant)
	return t, err == nil
}

// segmentLayout makes names that sort as their instants do.
const segmentLayout = "20060102T150405.000000000Z"

// line returns the entry as it stands in the log.
func (e *Entry) line() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // it would not leave the decision as it is
	err := enc.Encode(e)
	return b.Bytes(), err
}
