package receipt_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/receipt"
)

func TestAKeyIsMadeOnceAndForItsOwnerAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data", "receipts.key")
	var all [8]string
	var starts sync.WaitGroup
	for i := range all {
		starts.Go(func() {
			keys, err := receipt.ReadOrCreateKeys(file)
			if err != nil || len(keys) != 1 {
				t.Error(keys, err)
				return
			}
			all[i] = keys[0].Reveal()
		})
	}
	starts.Wait()
	for _, key := range all {
		if key == "" || key != all[0] {
			t.Errorf("keys differ")
		}
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := receipt.ReadOrCreateKeys(file); err == nil || !strings.Contains(err.Error(), "chmod 600") || strings.Contains(err.Error(), all[0]) {
		t.Errorf("a file that others may read: %v", err)
	}
}

func TestAFileWithoutAKeyIsRefusedAndNotChanged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "receipts.key")
	for _, text := range []string{"", "hunter2", strings.Repeat("A", 42)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := receipt.ReadOrCreateKeys(file)
		if err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			t.Errorf("%q became %q, %v", text, now, err)
		}
	}
}

// Several processes rotate at once. Each adds a key and none is lost, because a chain may have been
// signed with it.
func TestARotatedKeyStaysInTheFileAfterTheNewOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "receipts.key")
	first, err := receipt.ReadOrCreateKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				if err := receipt.RotateKey(file); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	keys, err := receipt.ReadOrCreateKeys(file)
	if err != nil || len(keys) != 41 || keys[40].Reveal() != first[0].Reveal() {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 2 { // the keys, and the lock
		t.Errorf("%v, %v", left, err)
	}
}
