package receipt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// ReadOrCreateKeys reads the keys in the file, one a line, in the format of NewKey. The first key signs; the
// others signed before it, the oldest is last. If there is no file, ReadOrCreateKeys makes one with a new
// key, which only its owner may read. If several processes do that at once, all get the same key.
// ReadOrCreateKeys refuses a file with other content, and a file that others may read.
func ReadOrCreateKeys(name string) ([]switchboard.Secret, error) {
	keys, err := ReadKeys(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return keys, err
	}
	if err := ownfile.MakeFolders(filepath.Dir(name)); err != nil {
		return nil, fmt.Errorf("key of receipts: %w", err)
	}
	err = writeKeys(name, []switchboard.Secret{NewKey()}, func(from string) error {
		if err := os.Link(from, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("key of receipts: %w", err)
	}
	return ReadKeys(name)
}

// lostSecretFile, beside the key's file, says that a person has replaced a lost secret, so that chains which are signed with another one
// may stay as they are.
const lostSecretFile = "receipts.lost"

// RotateKey puts a new key before those in the file, and makes the file if there is none. If the process is killed,
// the file is either unchanged or complete. A process continues its chain with the new key when it
// reads the file; see Chain.Rotate.
func RotateKey(name string) error {
	lock, err := ownfile.Open(name+".lock", os.O_RDWR|os.O_CREATE)
	if err != nil {
		return fmt.Errorf("key of receipts: %w", err)
	}
	defer func() { _ = lock.Close() }() // this also releases the lock
	// A key that another process adds now may already have signed.
	if err := ownfile.Lock(lock); err != nil {
		return fmt.Errorf("key of receipts: %w", err)
	}
	keys, err := ReadKeys(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if keys == nil { // chains from before are signed with a secret that is lost
		f, err := ownfile.Open(filepath.Join(filepath.Dir(name), lostSecretFile), os.O_WRONLY|os.O_CREATE)
		if err != nil {
			return fmt.Errorf("key of receipts: %w", err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("key of receipts: %w", err)
		}
	}
	keys = append([]switchboard.Secret{NewKey()}, keys...)
	if err := writeKeys(name, keys, func(from string) error { return os.Rename(from, name) }); err != nil {
		return fmt.Errorf("key of receipts: %w", err)
	}
	return nil
}

// ReadKeys reads the keys in the file as KeyFile does. If there is no file, the error is
// fs.ErrNotExist.
func ReadKeys(name string) ([]switchboard.Secret, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("key of receipts: %w", err)
	}
	if err := ownfile.Check(name, name, info); err != nil {
		return nil, fmt.Errorf("key of receipts: %w; if another user may have read it, make a new key with switchboard receipts rotate", err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("key of receipts: %w", err)
	}
	var keys []switchboard.Secret
	for line := range strings.FieldsSeq(string(text)) {
		key := switchboard.NewSecret(line)
		if _, err := newSigner(key); err != nil {
			return nil, fmt.Errorf("key of receipts: line %d of %s holds no key", len(keys)+1, name)
		}
		keys = append(keys, key)
	}
	if keys == nil {
		return nil, fmt.Errorf("key of receipts: %s holds no key", name)
	}
	return keys, nil
}

// writeKeys writes the keys to a temporary file in the same directory, syncs it, and calls place to
// put it in position.
func writeKeys(name string, keys []switchboard.Secret, place func(from string) error) error {
	dir := filepath.Dir(name)
	f, err := ownfile.CreateTemp(dir, ".key-*.tmp")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	for _, key := range keys {
		if err == nil {
			_, err = f.WriteString(key.Reveal() + "\n")
		}
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(f.Name()); err != nil {
		return err
	}
	return ownfile.SyncFolder(dir)
}
