// Package canonical writes JSON in the one form that digests are taken of, and
// takes them.
//
// In that form the members of an object are sorted by the bytes of their names,
// once unescaped; there is no space; strings have as few and as short escapes as
// can be; and numbers keep their spelling, since 1 and 1.0 are not the same to
// every reader. Texts that differ only in what this takes away mean the same to
// everybody. It is close to RFC 8785, which however sorts by UTF-16 and respells
// numbers.
package canonical

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxDepth bounds how deep objects and arrays may stand in each other.
const MaxDepth = 64

var errDepth = errors.New("objects and arrays stand more than 64 deep in each other")

// Append appends raw in canonical form. It refuses what is not one JSON value in
// UTF-8, a name that stands twice in an object, half of a surrogate pair, and
// what is deeper than MaxDepth; dst then comes back as it was. It does not keep
// raw.
func Append(dst, raw []byte) ([]byte, error) {
	w := pool.Get().(*writer)
	err := w.check(raw)
	w.release()
	if err != nil {
		return dst, fmt.Errorf("canonical form: %w", err)
	}
	return AppendScanned(dst, raw)
}

// AppendScanned is Append for what wire.Parse has accepted as a part of a message: it
// is not checked again, and must have no flaw.
func AppendScanned(dst, raw []byte) ([]byte, error) {
	w := pool.Get().(*writer)
	defer w.release()
	w.in, w.at, w.out = raw, 0, dst
	if err := w.value(0); err != nil {
		return dst, fmt.Errorf("canonical form: %w", err)
	}
	return w.out, nil
}

// Digest returns the digest of raw's canonical form, and refuses what Append
// does.
func Digest(raw []byte) (switchboard.Digest, error) {
	buf := buffers.Get().(*[]byte)
	defer keepBuffer(buf)
	var err error
	if *buf, err = Append((*buf)[:0], raw); err != nil {
		return "", err
	}
	return Sum(*buf), nil
}

// Sum returns the digest of data as it is.
func Sum(data []byte) switchboard.Digest {
	const prefix = "sha256:"
	sum := sha256.Sum256(data)
	var text [len(prefix) + 2*sha256.Size]byte
	hex.Encode(text[copy(text[:], prefix):], sum[:])
	return switchboard.Digest(text[:])
}

// Up to what size buffers are kept for later.
const (
	maxKept        = 1 << 20
	maxKeptMembers = 1 << 8
)

var (
	pool    = sync.Pool{New: func() any { return &writer{dec: jsontext.NewDecoder(new(bytes.Buffer))} }}
	buffers = sync.Pool{New: func() any { return new([]byte) }}
)

func keepBuffer(buf *[]byte) {
	if cap(*buf) <= maxKept {
		buffers.Put(buf)
	}
}

// A writer walks through a text that jsontext has found to be right, so that it
// need not look for what could be wrong.
type writer struct {
	dec *jsontext.Decoder
	src bytes.Buffer

	in  []byte
	at  int
	out []byte

	members []member // of the objects that are open, outermost first
	scratch []byte   // of sort
	text    []byte   // of string
}

// A member is where one was written.
type member struct {
	name       []byte // unescaped
	start, end int    // in writer.out
}

func (w *writer) release() {
	if cap(w.scratch) > maxKept {
		w.scratch = nil
	}
	if cap(w.text) > maxKept {
		w.text = nil
	}
	if cap(w.members) > maxKeptMembers {
		w.members = nil
	}
	clear(w.members[:cap(w.members)]) // they hold on to the text
	w.in, w.out, w.members = nil, nil, w.members[:0]
	pool.Put(w)
}

// check reports what is wrong with raw, apart from its depth.
func (w *writer) check(raw []byte) error {
	w.src = *bytes.NewBuffer(raw)
	w.dec.Reset(&w.src)
	defer func() { // it holds on to raw
		w.src = bytes.Buffer{}
		w.dec.Reset(&w.src)
	}()
	if _, err := w.dec.ReadValue(); err != nil {
		return err
	}
	if _, err := w.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the value")
	}
	return nil
}

// peek returns the next byte that is not space.
func (w *writer) peek() byte {
	for w.in[w.at] <= ' ' {
		w.at++
	}
	return w.in[w.at]
}

// value writes the value at hand, which stands depth levels deep.
func (w *writer) value(depth int) error {
	c := w.peek()
	switch {
	case c == '"':
		w.string()
		return nil
	case c != '{' && c != '[':
		w.scalar()
		return nil
	case depth == MaxDepth:
		return errDepth
	case c == '[':
		return w.array(depth + 1)
	}
	return w.object(depth + 1)
}

func (w *writer) array(depth int) error {
	w.out = append(w.out, '[')
	for w.at++; w.peek() != ']'; {
		if w.peek() == ',' {
			w.out = append(w.out, ',')
			w.at++
		}
		if err := w.value(depth); err != nil {
			return err
		}
	}
	w.at++
	w.out = append(w.out, ']')
	return nil
}

func (w *writer) object(depth int) error {
	w.out = append(w.out, '{')
	first, start := len(w.members), len(w.out)
	sorted := true
	for w.at++; w.peek() != '}'; {
		if w.peek() == ',' {
			w.out = append(w.out, ',')
			w.at++
			w.peek()
		}
		m := member{start: len(w.out)}
		name, copied := w.string()
		if m.name = name; copied {
			m.name = bytes.Clone(name)
		}
		w.peek() // the colon
		w.at++
		w.out = append(w.out, ':')
		if err := w.value(depth); err != nil {
			return err
		}
		m.end = len(w.out)
		if n := len(w.members); n > first && bytes.Compare(w.members[n-1].name, m.name) > 0 {
			sorted = false
		}
		w.members = append(w.members, m)
	}
	w.at++
	members := w.members[first:]
	if !sorted {
		w.sort(members, start)
	}
	w.members = w.members[:first]
	w.out = append(w.out, '}')
	return nil
}

// sort puts the members that were written from start on in order.
func (w *writer) sort(members []member, start int) {
	slices.SortFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
	w.scratch = append(w.scratch[:0], w.out[start:]...)
	w.out = w.out[:start]
	for i, m := range members {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(w.out, w.scratch[m.start-start:m.end-start]...)
	}
}

// scalar writes the number, true, false or null at hand as it is spelt.
func (w *writer) scalar() {
	from := w.at
	for w.at < len(w.in) && bytes.IndexByte(delimiters, w.in[w.at]) < 0 {
		w.at++
	}
	w.out = append(w.out, w.in[from:w.at]...)
}

var delimiters = []byte(" \t\r\n,:]}")

// string writes the string at hand. It returns the string unescaped, until the
// next call where that is a copy.
func (w *writer) string() (text []byte, copied bool) {
	from := w.at
	end := from + 1 + bytes.IndexByte(w.in[from+1:], '"')
	if escape := bytes.IndexByte(w.in[from:end], '\\'); escape >= 0 {
		copied = true
		// Byte by byte: to search for both again behind each escape would
		// cost the square of the length.
		for end = from + escape; w.in[end] != '"'; end++ {
			if w.in[end] == '\\' {
				end++
			}
		}
	}
	w.at = end + 1
	raw := w.in[from:w.at]
	if !copied {
		w.out = append(w.out, raw...)
		return raw[1 : len(raw)-1], false
	}
	// Neither can go wrong: the text has been checked.
	w.text, _ = jsontext.AppendUnquote(w.text[:0], raw)
	w.out, _ = jsontext.AppendQuote(w.out, w.text)
	return w.text, true
}
