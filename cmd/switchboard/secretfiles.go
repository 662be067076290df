package main

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

	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
)

// secretFiles are the files with secrets that commands write beside a configuration. A list in their folder says which
// files these are, so that a command removes no file of the user's.
type secretFiles struct {
	dir     string   // of the configuration
	written []string // by this command
}

// writtenList is the list, in the folder of the files: names with digests of the contents.
const writtenList = ".written.json"

// exists reports whether a file of the name exists. An error counts as yes.
func (s *secretFiles) exists(name string) bool {
	_, err := os.Lstat(s.path(name))
	return !errors.Is(err, fs.ErrNotExist)
}

func (s *secretFiles) path(name string) string { return filepath.Join(s.dir, filepath.FromSlash(name)) }

// write writes new files. After an error, or if the configuration is not written, the caller calls undo.
func (s *secretFiles) write(ctx context.Context, files []importer.SecretFile) error {
	if len(files) == 0 {
		return nil
	}
	for _, f := range files {
		name := s.path(f.Name)
		if err := ownfile.MakeFolders(filepath.Dir(name)); err != nil {
			return err
		}
		if err := createFile(name, []byte(f.Content.Reveal())); err != nil {
			return err
		}
		s.written = append(s.written, f.Name)
	}
	return s.changeList(ctx, func(list map[string]string) {
		for _, f := range files {
			list[f.Name] = contentDigest([]byte(f.Content.Reveal()))
		}
	})
}

// undo removes the files that this command has written.
func (s *secretFiles) undo(ctx context.Context) error {
	if len(s.written) == 0 {
		return nil
	}
	var errs []error
	for _, name := range s.written {
		errs = append(errs, os.Remove(s.path(name)))
	}
	errs = append(errs, s.changeList(ctx, func(list map[string]string) {
		for _, name := range s.written {
			delete(list, name)
		}
	}))
	s.written = nil
	return errors.Join(errs...)
}

// removable returns those of the names whose files a command has written and nobody has changed since.
func (s *secretFiles) removable(names []string) (out []string, err error) {
	list, err := s.readList()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		want, listed := list[name]
		if !listed {
			continue
		}
		content, err := os.ReadFile(s.path(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case contentDigest(content) == want:
			out = append(out, name)
		}
	}
	return out, nil
}

// remove removes files that removable has returned.
func (s *secretFiles) remove(ctx context.Context, names []string) error {
	s.written = names
	return s.undo(ctx)
}

// contentDigest returns a digest of a file's content. It stands beside the file, for the same readers.
func contentDigest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (s *secretFiles) listPath() string {
	return s.path(importer.SecretFolder + "/" + writtenList)
}

func (s *secretFiles) readList() (map[string]string, error) {
	text, err := os.ReadFile(s.listPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.parseList(text)
}

func (s *secretFiles) parseList(text []byte) (map[string]string, error) {
	list := map[string]string{}
	if len(text) == 0 {
		return list, nil
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it, and Switchboard takes none of these files for its own", s.listPath(), err)
	}
	return list, nil
}

func (s *secretFiles) changeList(ctx context.Context, change func(list map[string]string)) error {
	return rewrite.File(ctx, s.listPath(), 0o600, func(old []byte) ([]byte, error) {
		list, err := s.parseList(old)
		if err != nil {
			return nil, err
		}
		change(list)
		text, err := json.MarshalIndent(list, "", "  ")
		return append(text, '\n'), err
	})
}

// createFile writes a new file that only its owner may use, durably. It is an error if the file exists.
func createFile(name string, data []byte) error {
	f, err := ownfile.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
