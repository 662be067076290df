package receipt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// KeyFile reads the keys in the file, as NewKey makes them, one a line: the first one
// signs, and the others did before it, the last one at first. Where there is no file, it
// makes one up, which only its owner may read: of several who do that at once, all get
// the same. A file that holds anything else, or that others may read, is refused.
func KeyFile(name string) ([]switchboard.Secret, error) {
	keys, err := ReadKeys(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return keys, err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
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

// RotateKey puts a new key before those in the file, which has to be there. Whenever it is
// killed, the file is as it was or as it will be. Chains go on with the new key when their
// process reads it; see Book.Rotate.
func RotateKey(name string) error {
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("key of receipts: %w", err)
	}
	defer func() { _ = dir.Close() }() // and so the lock
	// A key that somebody else puts there meanwhile may have signed already.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("key of receipts: %w", err)
	}
	keys, err := ReadKeys(name)
	if err != nil {
		return err
	}
	keys = append([]switchboard.Secret{NewKey()}, keys...)
	if err := writeKeys(name, keys, func(from string) error { return os.Rename(from, name) }); err != nil {
		return fmt.Errorf("key of receipts: %w", err)
	}
	return nil
}

// ReadKeys is KeyFile where the file has to be there: else the error is fs.ErrNotExist.
func ReadKeys(name string) ([]switchboard.Secret, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("key of receipts: %w", err)
	}
	if err := switchboard.CheckPrivate(name, info); err != nil {
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

// writeKeys has the keys durable in a file beside the named one, and then put by place.
func writeKeys(name string, keys []switchboard.Secret, place func(from string) error) error {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, ".key-*.tmp")
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
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
