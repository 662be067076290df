package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/summit-switchboard/switchboard/internal/document"
)

// JournalFile is the name of the file that stands beside the main file while several files are changed as one. Its name begins with a dot, so it is never a
// file of the configuration itself.
const JournalFile = ".switchboard-change.json"

// Bounds of a journal.
const (
	MaxJournalFiles = 64
	maxJournalBytes = 12 << 20
)

// A JournaledFile is one file of a change that is being made.
type JournaledFile struct {
	Path   string `json:"path"`   // relative to the folder of the main file, with slashes
	Before string `json:"before"` // the SHA-256 of the content that the change replaces; "" means that there is no file
	After  []byte `json:"after"`  // the new content; null deletes the file

	// DropFolder says that the folder of a deleted file goes with it, if nothing else is in it: a change that is taken back has made the folder.
	DropFolder bool `json:"drop_folder,omitempty"`
}

// EncodeJournal returns the text of a JournalFile.
func EncodeJournal(files []JournaledFile) ([]byte, error) {
	text, err := json.Marshal(files)
	if err != nil {
		return nil, err
	}
	if len(files) > MaxJournalFiles || len(text) > maxJournalBytes {
		return nil, fmt.Errorf("a change of %d files with %d bytes is too large", len(files), len(text))
	}
	return text, nil
}

// ReadJournal returns the files of the change that is being made in a folder; nil if there is none.
func ReadJournal(folder string) ([]JournaledFile, error) {
	text, err := readJournalText(folder)
	if err != nil || text == nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var files []JournaledFile
	if err := d.Decode(&files); err != nil {
		return nil, fmt.Errorf("%s does not say which change was being made: %w", JournalFile, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || len(files) == 0 || len(files) > MaxJournalFiles {
		return nil, fmt.Errorf("%s does not say which change was being made", JournalFile)
	}
	for _, f := range files {
		if !fs.ValidPath(f.Path) || f.Path == "." {
			return nil, fmt.Errorf("%s names the path %.100q, which is none of a configuration", JournalFile, f.Path)
		}
	}
	return files, nil
}

// readJournalText returns the text of the journal of a folder; nil if there is none.
func readJournalText(folder string) ([]byte, error) {
	name := filepath.Join(folder, JournalFile)
	text, err := document.ReadBounded(func() (fs.FileInfo, error) { return os.Lstat(name) }, // no link: the file is ours
		func() (fs.File, error) { return os.Open(name) }, maxJournalBytes, document.AnyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %s", JournalFile, document.ErrorText(err))
	}
	return text, nil
}

// readThroughJournal makes the folder show the new content of each file that a change has not replaced yet. So a reader sees all files as they were before the
// change, or all as they are after it: the journal appears whole, at one instant. A file with neither content was edited by hand meanwhile, and stays.
func (f *configFolder) readThroughJournal() {
	files, err := ReadJournal(f.dir)
	if err != nil {
		f.fault(JournalFile, "%s; put the files in order by hand, and remove it", err)
	}
	if len(files) == 0 {
		return
	}
	if f.onWatch != nil { // but it is no file of the configuration: one without it means the same
		f.onWatch(f.displayPath(JournalFile))
	}
	now := map[string][]byte{}
	for _, j := range files {
		given := f.text != nil && j.Path == filepath.Base(f.file) // Options.Text
		if !given && f.digestOf(j.Path) == j.Before {
			now[j.Path] = j.After
		}
	}
	maps.Copy(now, f.replace)
	f.replace = now
}

// digestOf returns the SHA-256 of a file; "" if there is none.
func (f *configFolder) digestOf(name string) string {
	open := func() (fs.File, error) { return f.fsys.Open(name) }
	if name == filepath.Base(f.file) {
		open = func() (fs.File, error) { return os.Open(f.file) } // it may be a link to anywhere
	}
	file, err := open()
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // it was only read from
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// maxReadings is how often Load reads the files, if a change of several files begins or ends meanwhile.
const maxReadings = 5

// sameJournal reports whether the folder has the journal that it had when was was read.
func sameJournal(folder string, was []byte) bool {
	now, err := readJournalText(folder)
	return err != nil || bytes.Equal(was, now)
}
