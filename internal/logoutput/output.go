// Package logoutput decides where the log output of a serving process goes, its form, and which part of it is kept in the
// data folder.
//
// People and collectors read stderr, or a file that the configuration names. That output has the configured format and level;
// a reload changes both. The data folder holds the same records as JSON, and the stderr of each server:
//
//	logs/switchboard.log        our own records
//	logs/servers/ID.log         the lines of one server
//
// Each file is bounded and is rotated once, to NAME.1. A slow, full or broken disk never delays a caller: lines wait in
// a bounded queue, and lines that find it full are counted and left out. A stderr that is not read delays one record for a
// second, and then records are left out. Secrets are masked by the packages
// that write the lines, not here.
package logoutput

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

// The formats of log output.
const (
	FormatText = "text"
	FormatJSON = "json"
)

// Settings say what the log output is like.
type Settings struct {
	Format string     // FormatText or FormatJSON; "" means FormatText
	Level  slog.Level // records below it are left out
	To     string     // the path of a file; "" means stderr
}

// maxFile is the size limit of the file of Settings.To.
const maxFile = 64 << 20

// An Output is the log output of a process. It is safe for concurrent use.
type Output struct {
	stderr  io.Writer
	verbose bool
	writer  *fileQueue

	mu      sync.Mutex // held while the settings or the folder change
	current Settings
	folder  string // "" if nothing is kept

	// state is replaced as a whole, so that a handler reads it without a lock.
	state atomic.Pointer[outputState]
}

// outputState is the handler that Output has now, and the one of it that keeps records.
type outputState struct{ handler, kept slog.Handler }

// New returns the output of a process: text on stderr, until Apply says otherwise. If verbose is true, no record is left
// out, also with a level in the settings.
func New(stderr io.Writer, verbose bool) *Output {
	stderr = &patientWriter{to: stderr}
	o := &Output{stderr: stderr, verbose: verbose}
	o.writer = newFileQueue(func(err error) {
		slog.New(slog.NewTextHandler(stderr, nil)).Warn("the log output cannot be written to a file", "err", err)
	})
	o.build()
	return o
}

// Of returns the output that the log writes to; ok is false if the log has another handler.
func Of(log *slog.Logger) (o *Output, ok bool) {
	h, ok := log.Handler().(*handler)
	if !ok {
		return nil, false
	}
	return h.output, true
}

// Handler returns the handler of the output. It follows Apply and Keep.
func (o *Output) Handler() slog.Handler { return &handler{output: o} }

// Apply changes the settings, from the next record on.
func (o *Output) Apply(s Settings) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current != s {
		o.current = s
		o.build()
	}
}

// Keep keeps records and lines in the folder logs of the data folder from now on.
func (o *Output) Keep(data string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if folder := Folder(data); o.folder != folder {
		o.folder = folder
		o.build()
	}
}

// KeepStderr keeps a line that a server has written to its stderr, if there is a data folder. leftOut is the number of
// lines before it that were left out. It does not block.
func (o *Output) KeepStderr(server, line string, leftOut int) {
	o.mu.Lock()
	folder := o.folder
	o.mu.Unlock()
	if folder == "" {
		return
	}
	o.writer.write(file{path: serverFile(folder, server), limit: maxServerFile}, encodeServerLine(server, line, leftOut))
}

// KeepError keeps an error that is printed elsewhere, so that the files have it too.
func (o *Output) KeepError(message string, err error) {
	slog.New(o.state.Load().kept).Error(message, "err", err)
}

// Close writes what waits in the queue, for at most a second. Records after it go only to stderr.
func (o *Output) Close() {
	o.mu.Lock()
	o.folder, o.current.To = "", ""
	o.build()
	o.mu.Unlock()
	o.writer.close(time.Second)
}

// build makes the handler for the present settings. The caller holds o.mu, or is New.
func (o *Output) build() {
	level := o.current.Level
	if o.verbose {
		level = slog.LevelDebug
	}
	to := o.stderr
	if o.current.To != "" {
		to = &recordWriter{o.writer, file{path: o.current.To, limit: maxFile}, o.stderr}
	}
	s := &outputState{handler: newHandler(to, o.current.Format, level), kept: slog.DiscardHandler}
	if o.folder != "" {
		own := &recordWriter{o.writer, file{path: filepath.Join(o.folder, ownFile), limit: maxOwnFile, private: true}, io.Discard}
		kept := slog.NewJSONHandler(own, &slog.HandlerOptions{Level: level, ReplaceAttr: shortenAttr}).WithAttrs([]slog.Attr{slog.Int("pid", os.Getpid())})
		s.kept = withoutStderr{kept}
		s.handler = slog.NewMultiHandler(s.handler, s.kept)
	}
	o.state.Store(s)
}

func newHandler(w io.Writer, format string, level slog.Level) slog.Handler {
	if format == FormatJSON {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	}
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})
}

// maxKeptText is the most bytes of one text in a record that is kept.
const maxKeptText = 4 << 10

// shortenAttr cuts long texts, so that one record cannot fill a file.
func shortenAttr(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	}
	if len(text) > maxKeptText {
		a.Value = slog.StringValue(text[:maxKeptText] + "…")
	}
	return a
}

// withoutStderr is a handler without the records of servers' lines, which KeepStderr keeps in the files of the servers.
type withoutStderr struct{ slog.Handler }

func (h withoutStderr) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == process.StderrMessage {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h withoutStderr) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutStderr{h.Handler.WithAttrs(attrs)}
}

func (h withoutStderr) WithGroup(name string) slog.Handler {
	return withoutStderr{h.Handler.WithGroup(name)}
}

// A handler passes records to the handler that its output has at the time. It repeats the calls of WithAttrs and
// WithGroup on that handler, once for each change of the output.
type handler struct {
	output *Output
	parent *handler                         // nil for the first one
	derive func(slog.Handler) slog.Handler  // from the handler of parent
	cached atomic.Pointer[derivedFromState] // for the state that the output had last
}

type derivedFromState struct {
	from    *outputState
	handler slog.Handler
}

// now returns the handler for the present state of the output.
func (h *handler) now() slog.Handler { return h.at(h.output.state.Load()) }

func (h *handler) at(s *outputState) slog.Handler {
	if h.parent == nil {
		return s.handler
	}
	if c := h.cached.Load(); c != nil && c.from == s {
		return c.handler
	}
	made := h.derive(h.parent.at(s))
	h.cached.Store(&derivedFromState{s, made})
	return made
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.now().Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error { return h.now().Handle(ctx, r) }

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{output: h.output, parent: h, derive: func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) }}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{output: h.output, parent: h, derive: func(to slog.Handler) slog.Handler { return to.WithGroup(name) }}
}
