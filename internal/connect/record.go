package connect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// recordFolder is the folder of the records in the data folder. A record holds the secrets of the entries that were taken out.
const recordFolder = "connected"

// A record says what connect has done to the files of one client. It is written before the files are changed.
type record struct {
	Client  string         `json:"client"`
	Config  string         `json:"config"` // the absolute path of the configuration
	Files   []*changedFile `json:"files,omitempty"`
	Servers []adopted      `json:"servers,omitempty"`
}

// A changedFile is a file of the client that was changed, or is about to be.
type changedFile struct {
	File string `json:"file"`

	// Steps undo the changes byte for byte, the last one first, as long as the file has not been changed otherwise.
	Steps []step `json:"steps"`

	// Entries are our entries in the file.
	Entries []written `json:"entries,omitempty"`

	// Backup is the name of the copy of the file from before the first change, or "".
	Backup string `json:"backup,omitempty"`
}

// A step is one change of a file.
type step struct {
	Before string              `json:"before"` // the digest of the text; "" means that there was no file
	After  string              `json:"after"`
	Undo   []clientfile.Splice `json:"undo"`
}

// A written is one of our entries in a client's file.
type written struct {
	Place Location        `json:"place"`
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// isAt reports whether an entry at a place is this one. The client, or the user, may have added keys to it, and over HTTP may have changed them.
func (w written) isAt(place Location, e clientfile.Entry) bool {
	return placeKey(w.Place) == placeKey(place) && w.Name == e.Name &&
		(startsSame(e, clientfile.Entry{Value: w.Value}) || address(w.Value) != "" && address(w.Value) == address(e.Value))
}

// An adopted is a server that was taken out of a client's file.
type adopted struct {
	Place Location             `json:"place"`
	Entry clientfile.Entry     `json:"entry"`
	ID    switchboard.ServerID `json:"id"`

	// Row is the digest of the server's row in the configuration, as connect wrote it. It is "" if the row was there
	// before, and so stays.
	Row     string         `json:"row,omitempty"`
	Secrets []secretDigest `json:"secrets,omitempty"` // the files that connect wrote for the row
}

// A secretDigest is a file that connect wrote, with a digest of its content.
type secretDigest struct {
	Name   string `json:"name"` // relative to the configuration
	Digest string `json:"digest"`
}

// file returns the entry of a file, and makes it if there is none.
func (r *record) file(name string) *changedFile {
	for _, f := range r.Files {
		if f.File == name {
			return f
		}
	}
	f := &changedFile{File: name}
	r.Files = append(r.Files, f)
	return f
}

// digestOf returns the digest of a text; that of nil, for no file, is "".
func digestOf(text []byte) string {
	if text == nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// A recordDir holds the records of one data folder.
type recordDir string

func (d recordDir) path(client string) string {
	return filepath.Join(string(d), recordFolder, client+".json")
}

// read returns the record of a client, or nil if there is none.
func (d recordDir) read(client string) (*record, error) {
	text, err := os.ReadFile(d.path(client))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil || r.Client != client {
		return nil, fmt.Errorf("%s is no record of what was taken out of the files of %s; move it away to begin anew, and put the servers back by hand", d.path(client), client)
	}
	return &r, nil
}

// others returns the records of the other clients.
func (d recordDir) others(client string) ([]*record, error) {
	var out []*record
	for _, c := range table {
		if c.ID == client {
			continue
		}
		r, err := d.read(c.ID)
		if err != nil {
			return nil, err
		}
		if r != nil {
			out = append(out, r)
		}
	}
	return out, nil
}

// write writes a record durably.
func (d recordDir) write(ctx context.Context, r *record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return rewrite.File(ctx, d.path(r.Client), 0o600, func([]byte) ([]byte, error) { return append(text, '\n'), nil })
}

func (d recordDir) remove(client string) error {
	err := os.Remove(d.path(client))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// usedBy returns the records of other clients that need a server.
func usedBy(records []*record, id switchboard.ServerID) []*record {
	return slices.DeleteFunc(slices.Clone(records), func(r *record) bool {
		return !slices.ContainsFunc(r.Servers, func(a adopted) bool { return a.ID == id })
	})
}
