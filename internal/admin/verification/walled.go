package verification

import (
	"context"
	"time"

	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify/bench"
)

// A WalledServer is a program in walls whose server need not be in force. Use StartWalled. It is for one goroutine.
type WalledServer struct {
	v     *Verifier
	s     *switchboard.Server
	by    string
	bench *bench.Bench

	closed bool
}

// An OfferedDefinition is a tool as a program in walls offers it.
type OfferedDefinition struct {
	Name, Digest string
	Definition   []byte
}

// StartWalled starts the program of a server in walls. The caller must call Close; until then no other server is verified. The error is ErrBusy, or says why the program cannot be
// exercised in walls.
func (v *Verifier) StartWalled(ctx context.Context, s *switchboard.Server, by string) (*WalledServer, error) {
	if err := v.begin(&Progress{Server: s.ID, By: by, Since: time.Now().UTC().Truncate(time.Second), Running: true}); err != nil {
		return nil, err
	}
	w := &WalledServer{v: v, s: s, by: by}
	starting, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	b, err := bench.Start(starting, s, v.o.Bench)
	if err != nil {
		w.Close()
		return nil, err
	}
	w.bench = b
	return w, nil
}

// Offered returns what the program offers, sorted by name.
func (w *WalledServer) Offered() (all []OfferedDefinition) {
	for _, name := range w.bench.Names() {
		if definition, digest, err := w.bench.Definition(name, w.s.Admission.Volatile); err == nil {
			all = append(all, OfferedDefinition{name, digest, definition})
		}
	}
	return all
}

// Verify verifies tools of the program. The reports have receipts. They count for nothing until Verifier.Believe is called.
func (w *WalledServer) Verify(ctx context.Context, tools []KnownTool) (reports []evidence.KeptReport, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(tools))*limitsOf(w.s).Bounded().Time+startTime)
	defer cancel()
	known := map[string]any{}
	for i := range tools {
		if i > 0 {
			if err := w.bench.Restore(); err != nil {
				return nil, err
			}
		}
		r := w.v.verifyTool(ctx, w.s, &tools[i], w.bench, "", known)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		kept, err := w.v.record(ctx, r, w.by)
		if err != nil {
			return nil, err
		}
		reports = append(reports, *kept)
	}
	return reports, nil
}

// Close ends the program. A WalledServer can be closed twice.
func (w *WalledServer) Close() {
	if w.closed {
		return
	}
	w.closed = true
	if w.bench != nil {
		w.bench.Close()
	}
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	w.v.running = nil
}
