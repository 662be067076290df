package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// A Record is one of the things that a store keeps, as Dump gives it and Load takes it.
type Record struct {
	Kind  Kind
	Group string // of a value or a limit
	Name  string // of a value, a limit or a log; that of its log, for an entry
	Value Value  // of a value
	Whole time.Time
	Span  Span // of a log
	Entry Entry
}

// A Kind is what a Record is of.
type Kind string

// The kinds. The entries of a log follow it, in their order.
const (
	KindValue Kind = "value"
	KindLimit Kind = "limit" // Whole is when it is whole again
	KindLog   Kind = "log"
	KindEntry Kind = "entry"
)

// exportFormat is the version of what Export writes.
const exportFormat = 1

// ErrExport says that what shall be imported is no export, or not all of one, or has been
// changed since.
var ErrExport = errors.New("not a whole export")

// The lines of an export: a first one, one for each record, and a last one, by which one
// sees that it is whole.
type (
	exportFirst struct {
		Store  string    `json:"store"` // the kind that it was
		Format int       `json:"format"`
		At     time.Time `json:"at"`
	}
	exportLine struct {
		Kind    Kind    `json:"kind"`
		Group   string  `json:"group,omitempty"`
		Name    string  `json:"name,omitempty"`
		Version Version `json:"version,string,omitzero"`
		Micros  int64   `json:"micros,string,omitzero"` // since 1970: when it expires, or is whole
		First   uint64  `json:"first,string,omitzero"`
		Last    uint64  `json:"last,string,omitzero"`
		Seq     uint64  `json:"seq,string,omitzero"`
		Text    string  `json:"text,omitempty"` // the data, where it is UTF-8
		Base64  []byte  `json:"base64,omitempty"`
	}
	exportLast struct {
		Records int    `json:"records"`
		SHA256  string `json:"sha256"` // of all lines before
	}
)

// maxExportLine is how long a line may be: a value of control characters, each written as six.
const maxExportLine = 6*MaxValue + 16*MaxKey

// Export writes all that s keeps, as lines of JSON. What it writes is as secret as
// the store.
func Export(ctx context.Context, s Store, w io.Writer) error {
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)
	n := 0
	line := func(of any) error {
		b, err := json.Marshal(of)
		if err == nil {
			_, err = out.Write(append(b, '\n'))
		}
		return err
	}
	if err := line(exportFirst{s.Status().Kind, exportFormat, time.Now().UTC().Truncate(time.Second)}); err != nil {
		return err
	}
	if err := s.Dump(ctx, func(r Record) error {
		n++
		return line(lineOf(r))
	}); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := line(exportLast{n, hex.EncodeToString(sum.Sum(nil))}); err != nil {
		return err
	}
	return out.Flush()
}

func lineOf(r Record) exportLine {
	l := exportLine{Kind: r.Kind, Group: r.Group, Name: r.Name}
	var data []byte
	switch r.Kind {
	case KindValue:
		data, l.Version = r.Value.Data, r.Value.Version
		if !r.Value.Expires.IsZero() {
			l.Micros = r.Value.Expires.UnixMicro()
		}
	case KindLimit:
		l.Micros = r.Whole.UnixMicro()
	case KindLog:
		l.First, l.Last = r.Span.First, r.Span.Last
	case KindEntry:
		data, l.Seq, l.Name = r.Entry.Data, r.Entry.Seq, "" // it stands below its log
	}
	if utf8.Valid(data) {
		l.Text = string(data)
	} else {
		l.Base64 = data
	}
	return l
}

// Import puts an export into s, which has to be empty: ErrConflict where it is not, and
// ErrExport where the export is not whole. Nothing is kept then. What has expired
// since is left out.
func Import(ctx context.Context, s Store, r io.Reader) error {
	return s.Load(ctx, records(r, time.Now()))
}

// records reads an export; it ends with an error where something is wrong with it, be that in
// the last line.
func records(r io.Reader, now time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		in := bufio.NewReaderSize(r, 64<<10)
		sum := sha256.New()
		var log Record // whose entries are read
		logs := map[string]bool{}
		n := 0
		err := func() error {
			var first exportFirst
			line, err := readLine(in)
			if err != nil {
				return err
			}
			if err := unmarshal(line, &first); err != nil || first.Format != exportFormat {
				return fmt.Errorf("%w: line 1 is not that of an export of format %d", ErrExport, exportFormat)
			}
			for ; ; n++ {
				sum.Write(line)
				sum.Write([]byte{'\n'})
				if line, err = readLine(in); err != nil {
					return err
				}
				if bytes.HasPrefix(line, []byte(`{"records":`)) {
					break
				}
				var l exportLine
				if err := unmarshal(line, &l); err != nil {
					return fmt.Errorf("%w: line %d: %w", ErrExport, n+2, err)
				}
				rec, err := l.record(&log)
				if err != nil {
					return fmt.Errorf("%w: line %d: %w", ErrExport, n+2, err)
				}
				if rec.Kind == KindLog {
					if logs[rec.Name] {
						return fmt.Errorf("%w: line %d: log %s is there twice", ErrExport, n+2, rec.Name)
					}
					logs[rec.Name] = true
				}
				if e := rec.Value.Expires; !e.IsZero() && !now.Before(e) {
					continue
				}
				if !yield(rec, nil) {
					return nil
				}
			}
			var last exportLast
			if err := unmarshal(line, &last); err != nil || last != (exportLast{n, hex.EncodeToString(sum.Sum(nil))}) {
				return fmt.Errorf("%w: it has been changed: the count or the digest in its last line is that of another", ErrExport)
			}
			if log.Kind != "" && log.Entry.Seq != log.Span.Last {
				return fmt.Errorf("%w: log %s ends with %d, not %d", ErrExport, log.Name, log.Entry.Seq, log.Span.Last)
			}
			switch _, err := in.ReadByte(); {
			case err == nil:
				return fmt.Errorf("%w: something follows its last line", ErrExport)
			case !errors.Is(err, io.EOF):
				return err
			}
			return nil
		}()
		if err != nil {
			yield(Record{}, err)
		}
	}
}

func unmarshal(line []byte, into any) error {
	return json.Unmarshal(line, into, json.RejectUnknownMembers(true))
}

func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case len(line) > maxExportLine:
			return nil, fmt.Errorf("%w: a line is longer than any of an export", ErrExport)
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: it has no end: it was cut off", ErrExport)
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// record is what the line says. log is the log that was read last, and what of its
// entries.
func (l *exportLine) record(log *Record) (Record, error) {
	r := Record{Kind: l.Kind, Group: l.Group, Name: l.Name}
	data := append([]byte(l.Text), l.Base64...)
	at := time.UnixMicro(l.Micros)
	switch l.Kind {
	case KindValue:
		if r.Value = (Value{Data: data, Version: l.Version}); l.Micros != 0 {
			r.Value.Expires = at
		}
		if l.Version == 0 || l.Version == Any {
			return r, errors.New("a value without a version")
		}
		return r, errors.Join(Key{r.Group, r.Name}.check(), checkSize("the bytes of a value", len(data), MaxValue))
	case KindLimit:
		r.Whole = at
		return r, Key{r.Group, r.Name}.check()
	case KindLog:
		if log.Kind != "" && log.Entry.Seq != log.Span.Last {
			return r, fmt.Errorf("log %s ends with %d, not %d", log.Name, log.Entry.Seq, log.Span.Last)
		}
		r.Span = Span{l.First, l.Last}
		*log = r
		log.Entry.Seq = l.First - 1
		if l.First < 1 || l.First > l.Last+1 || l.Last == 0 {
			return r, fmt.Errorf("log %s holds %d to %d", l.Name, l.First, l.Last)
		}
		return r, checkName("a log", r.Name)
	case KindEntry:
		r.Name, r.Entry = log.Name, Entry{l.Seq, data}
		if log.Kind == "" || l.Seq != log.Entry.Seq+1 || l.Seq > log.Span.Last {
			return r, fmt.Errorf("entry %d of log %q stands behind entry %d", l.Seq, log.Name, log.Entry.Seq)
		}
		log.Entry.Seq++
		return r, checkSize("the bytes of an entry", len(data), MaxEntry)
	}
	return r, fmt.Errorf("no kind of record is called %q", l.Kind)
}

// errNotEmpty is what Load says where something is kept.
var errNotEmpty = fmt.Errorf("%w: the store is not empty", ErrConflict)
