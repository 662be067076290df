package store

import (
	"bufio"
	"bytes"
	"cmp"
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

// A Record is one item of a store, as Dump returns it and Load takes it.
type Record struct {
	Kind   Kind
	Group  string // of a value, a limit, an account or a hold
	Name   string // of a value, a limit, an account or a log; of an entry's log; the id of a hold
	Value  Value  // of a value
	FullAt time.Time
	Span   Span // of a log
	Entry  Entry

	Account AccountState
	Hold    HoldState
}

// A Kind says what a Record holds.
type Kind string

// The kinds. The entries of a log follow its KindLog record, in order. All holds are before all accounts, and both before the
// others.
const (
	KindHold    Kind = "hold"
	KindAccount Kind = "account"

	KindValue Kind = "value"
	KindLimit Kind = "limit" // Whole is when it is fully available again
	KindLog   Kind = "log"
	KindEntry Kind = "entry"
)

// The versions of the format that Export writes. The first one has no accounts; Switchboard still writes it for a store without
// accounts, so that older versions can import it.
const (
	formatWithoutAccounts = 1
	exportFormat          = 2
)

// ErrExport says that the input of Import is no export, is incomplete, or was changed.
var ErrExport = errors.New("not a whole export")

// The lines of an export: a first line, one line for each record, and a last line that shows that the export
// is complete.
type (
	exportFirst struct {
		Store  string    `json:"store"` // the kind of the exported store
		Format int       `json:"format"`
		At     time.Time `json:"at"`
	}
	exportLine struct {
		Kind    Kind    `json:"kind"`
		Group   string  `json:"group,omitempty"`
		Name    string  `json:"name,omitempty"`
		Version Version `json:"version,string,omitzero"`
		Micros  int64   `json:"micros,string,omitzero"` // since 1970: when the value expires, or the limit is fully available
		First   uint64  `json:"first,string,omitzero"`
		Last    uint64  `json:"last,string,omitzero"`
		Seq     uint64  `json:"seq,string,omitzero"`
		Text    string  `json:"text,omitempty"` // the data, if it is UTF-8
		Base64  []byte  `json:"base64,omitempty"`

		Settled int64          `json:"settled,string,omitzero"` // of an account; its Micros are when it ends
		Held    int64          `json:"held,string,omitzero"`
		Amounts []exportAmount `json:"amounts,omitempty"` // of a hold; its Micros are when it expires
	}
	exportAmount struct {
		Account string `json:"account"`
		Amount  int64  `json:"amount,string,omitzero"`
	}
	exportLast struct {
		Records int    `json:"records"`
		SHA256  string `json:"sha256"` // of all lines before this one
	}
)

// maxExportLine is the longest line: a value of control characters, each of them written as six bytes.
const maxExportLine = 6*MaxValue + 16*MaxKey

// Export writes everything in s as lines of JSON. The output is as secret as the store.
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
	first := exportFirst{s.Status().Kind, formatWithoutAccounts, time.Now().UTC().Truncate(time.Second)}
	if err := s.Dump(ctx, func(r Record) error {
		if n++; n > 1 {
			return line(lineFor(r))
		}
		if r.Kind == KindHold || r.Kind == KindAccount {
			first.Format = exportFormat
		}
		return cmp.Or(line(first), line(lineFor(r)))
	}); err != nil {
		return err
	}
	if n == 0 {
		if err := line(first); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := line(exportLast{n, hex.EncodeToString(sum.Sum(nil))}); err != nil {
		return err
	}
	return out.Flush()
}

func lineFor(r Record) exportLine {
	l := exportLine{Kind: r.Kind, Group: r.Group, Name: r.Name}
	var data []byte
	switch r.Kind {
	case KindValue:
		data, l.Version = r.Value.Data, r.Value.Version
		if !r.Value.Expires.IsZero() {
			l.Micros = r.Value.Expires.UnixMicro()
		}
	case KindLimit:
		l.Micros = r.FullAt.UnixMicro()
	case KindAccount:
		l.Settled, l.Held = r.Account.Settled, r.Account.Held
		if !r.Account.Ends.IsZero() {
			l.Micros = r.Account.Ends.UnixMicro()
		}
	case KindHold:
		l.Micros = r.Hold.Expires.UnixMicro()
		for _, a := range r.Hold.Amounts {
			l.Amounts = append(l.Amounts, exportAmount(a))
		}
	case KindLog:
		l.First, l.Last = r.Span.First, r.Span.Last
	case KindEntry:
		data, l.Seq, l.Name = r.Entry.Data, r.Entry.Seq, "" // the entry follows its log
	}
	if utf8.Valid(data) {
		l.Text = string(data)
	} else {
		l.Base64 = data
	}
	return l
}

// Import stores an export in s, which must be empty: ErrConflict if it is not, ErrExport if the export is not
// complete. Nothing is stored then. Values that have expired since are left out.
func Import(ctx context.Context, s Store, r io.Reader) error {
	now := time.Now()
	return s.Load(ctx, balanceAccounts(readExport(r, now), now))
}

// readExport reads an export. It ends with an error if the export has any fault, also in its last line.
func readExport(r io.Reader, now time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		in := bufio.NewReaderSize(r, 64<<10)
		sum := sha256.New()
		var log Record // the log of the entries being read
		logs := map[string]bool{}
		n := 0
		err := func() error {
			var first exportFirst
			line, err := readLine(in)
			if err != nil {
				return err
			}
			if err := unmarshalStrict(line, &first); err != nil || first.Format != formatWithoutAccounts && first.Format != exportFormat {
				return fmt.Errorf("%w: line 1 does not begin an export of format %d or %d", ErrExport, formatWithoutAccounts, exportFormat)
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
				if err := unmarshalStrict(line, &l); err != nil {
					return fmt.Errorf("%w: line %d: %w", ErrExport, n+2, err)
				}
				rec, err := l.toRecord(&log)
				if err != nil {
					return fmt.Errorf("%w: line %d: %w", ErrExport, n+2, err)
				}
				if rec.Kind == KindLog {
					if logs[rec.Name] {
						return fmt.Errorf("%w: line %d: log %s occurs twice", ErrExport, n+2, rec.Name)
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
			if err := unmarshalStrict(line, &last); err != nil || last != (exportLast{n, hex.EncodeToString(sum.Sum(nil))}) {
				return fmt.Errorf("%w: it has been changed: the count or the digest in its last line is wrong", ErrExport)
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

func unmarshalStrict(line []byte, into any) error {
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
			return nil, fmt.Errorf("%w: a line is too long for an export", ErrExport)
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: it has no end: it was cut off", ErrExport)
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// toRecord returns the record of the line. log is the log that was read last; log.Entry is its last entry so
// far.
func (l *exportLine) toRecord(log *Record) (Record, error) {
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
		r.FullAt = at
		return r, Key{r.Group, r.Name}.check()
	case KindAccount:
		if r.Account = (AccountState{Name: l.Name, Settled: l.Settled, Held: l.Held}); l.Micros != 0 {
			r.Account.Ends = at
		}
		return r, errors.Join(checkName("a group", r.Group), r.Account.check())
	case KindHold:
		r.Hold.Expires = at
		for _, a := range l.Amounts {
			r.Hold.Amounts = append(r.Hold.Amounts, HeldAmount(a))
		}
		return r, errors.Join(checkName("a group", r.Group), checkName("a hold", r.Name), r.Hold.check())
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
			return r, fmt.Errorf("entry %d of log %q follows entry %d", l.Seq, log.Name, log.Entry.Seq)
		}
		log.Entry.Seq++
		return r, checkSize("the bytes of an entry", len(data), MaxEntry)
	}
	return r, fmt.Errorf("%q is no kind of record", l.Kind)
}

// errNotEmpty is the error of Load for a store that is not empty.
var errNotEmpty = fmt.Errorf("%w: the store is not empty", ErrConflict)
