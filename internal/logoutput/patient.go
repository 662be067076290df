package logoutput

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// patience is how long a record waits for stderr.
const patience = time.Second

// A patientWriter writes to a place that may stop taking text: the stderr of a program whose parent does not read it. After a
// write that has not ended within the limit, records are left out until it ends. So a parent delays a caller once, and never
// stops it.
type patientWriter struct {
	to io.Writer

	mu      sync.Mutex
	pending chan struct{} // closed when the write that took too long has ended; nil if there is none
	lost    int           // records that were left out since then
}

// Write writes one record. It never fails, since there is no other place for the record.
func (w *patientWriter) Write(record []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending != nil {
		select {
		case <-w.pending:
			w.pending = nil
		default:
			w.lost++
			return len(record), nil
		}
	}
	text := bytes.Clone(record)
	if w.lost > 0 {
		text = append(text, fmt.Sprintf("%d records before this one were left out, because nothing read them\n", w.lost)...)
		w.lost = 0
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = w.to.Write(text) // there is no other place for it
	}()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-ended:
	case <-late.C:
		w.pending = ended
	}
	return len(record), nil
}
