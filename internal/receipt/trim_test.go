package receipt_test

import (
	"context"
	"errors"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
)

// What is not counted is kept, but only up to twice the allowed size: otherwise a memory that cannot be written fills the disk.
func TestATrimKeepsWhatIsNotCountedUpToTwiceTheSize(t *testing.T) {
	unreadable := errors.New("the mark cannot be read")
	for name, tt := range map[string]struct {
		most         uint64 // entries
		folded       uint64
		err          error
		least, limit uint64 // entries that are left
	}{
		"it has less than twice the size":  {most: 80, least: 103, limit: 103},
		"it has more than twice the size":  {most: 20, least: 36, limit: 45},
		"a part is counted":                {most: 80, folded: 10, least: 93, limit: 93},
		"all is counted":                   {most: 20, folded: 102, least: 10, limit: 22},
		"the mark cannot be read, and fit": {most: 80, err: unreadable, least: 103, limit: 103},
		"the mark cannot be read":          {most: 20, err: unreadable, least: 36, limit: 45},
	} {
		s := store.NewMemory()
		b := openBook(t, s, options())
		for range 100 {
			b.Add(&receipt.Receipt{Kind: receipt.Call})
		}
		if _, err := b.Write(t.Context(), &receipt.Receipt{Kind: receipt.Intent}); err != nil {
			t.Fatal(err)
		}
		var size uint64
		for e, err := range receipt.List(t.Context(), s, receipt.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			size += uint64(len(e.Raw))
		}
		size /= 103
		keep := receipt.Retention{MaxBytes: int64(tt.most * size), Folded: func(context.Context, string) (uint64, error) { return tt.folded, tt.err }}
		gone, err := b.Trim(t.Context(), keep)
		if wantErr := tt.err != nil && tt.most == 80; wantErr != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if left := 103 - gone; left < tt.least || left > tt.limit {
			t.Errorf("%s: %d entries are left, want %d to %d", name, left, tt.least, tt.limit)
		}
		good(t, s)
		shut(t, b)
	}
}
