package memory_test

import (
	"bytes"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/store"
)

// FuzzPage reads bytes as a page. What it takes, it writes and reads again as the same page.
func FuzzPage(f *testing.F) {
	s := store.NewMemory()
	memory.Fill(f, s, "acme", 1, 3)
	_ = s.Dump(f.Context(), func(r store.Record) error {
		f.Add(r.Value.Data)
		return nil
	})
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		once, err := memory.DecodePage(data)
		if err != nil {
			return
		}
		twice, err := memory.DecodePage(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%x becomes %x and then %x: %v", data, once, twice, err)
		}
	})
}
