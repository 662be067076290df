package vault

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

// KeyName is the name of the key file, beside a file store.
const KeyName = "vault.key"

// KeyFile returns the key in the file KeyName of the folder. If there is no file, KeyFile makes one with a new key, which only its
// owner may read. If several processes do that at once, all get the same key. KeyFile refuses a file that others may read.
func KeyFile(folder string) (switchboard.Secret, error) {
	name := filepath.Join(folder, KeyName)
	key, err := readKey(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := ownfile.MakeFolders(folder); err != nil {
		return switchboard.Secret{}, fmt.Errorf("key of the vault: %w", err)
	}
	if err := makeKey(name); err != nil {
		return switchboard.Secret{}, fmt.Errorf("key of the vault: %w", err)
	}
	return readKey(name)
}

// makeKey makes the file with a new key, unless there is one. It appears with its whole content.
func makeKey(name string) error {
	folder := filepath.Dir(name)
	f, err := ownfile.CreateTemp(folder, ".vault-*.tmp")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(newID() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return ownfile.SyncFolder(folder)
}

func readKey(name string) (switchboard.Secret, error) {
	info, err := os.Stat(name)
	if err != nil {
		return switchboard.Secret{}, fmt.Errorf("key of the vault: %w", err)
	}
	if err := ownfile.Check(name, name, info); err != nil {
		return switchboard.Secret{}, fmt.Errorf("key of the vault: %w", err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return switchboard.Secret{}, fmt.Errorf("key of the vault: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if len(key) < minKey || strings.ContainsAny(key, "\r\n") {
		return switchboard.Secret{}, fmt.Errorf("key of the vault: %s holds no key; if the file is lost, delete it: persons then connect again", name)
	}
	return switchboard.NewSecret(key), nil
}
