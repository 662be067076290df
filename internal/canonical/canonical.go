// Package canonical writes JSON in one canonical form, and takes digests of that form. Append converts any JSON; a Writer
// writes values member by member.
//
// In that form the members of an object are sorted by the bytes of their unescaped names; there is no white space;
// strings have as few and as short escapes as possible; and numbers keep their spelling, because 1 and 1.0 are not the
// same to every reader. Texts with the same canonical form have the same meaning to every reader. The form is close to
// RFC 8785, but that sorts by UTF-16 and respells numbers.
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

// MaxDepth limits how deeply objects and arrays may be nested.
const MaxDepth = 64

var errTooDeep = errors.New("objects and arrays stand more than 64 deep in each other")

// Append appends raw in canonical form. It refuses text that is not one JSON value in UTF-8, a duplicate name in an
// object, half of a surrogate pair, and nesting deeper than MaxDepth. It then returns dst unchanged. It does not retain
// raw.
func Append(dst, raw []byte) ([]byte, error) {
	w := canonicalizers.Get().(*canonicalizer)
	err := w.checkSyntax(raw)
	w.release()
	if err != nil {
		return dst, fmt.Errorf("canonical form: %w", err)
	}
	return AppendScanned(dst, raw)
}

// AppendScanned is Append for a part of a message that wire.Parse has accepted. It does not check raw again, so raw
// must be valid.
func AppendScanned(dst, raw []byte) ([]byte, error) {
	w := canonicalizers.Get().(*canonicalizer)
	defer w.release()
	w.in, w.at, w.out = raw, 0, dst
	if err := w.writeValue(0); err != nil {
		return dst, fmt.Errorf("canonical form: %w", err)
	}
	return w.out, nil
}

// Digest returns the digest of raw's canonical form. It refuses what Append refuses.
func Digest(raw []byte) (switchboard.Digest, error) {
	buf := buffers.Get().(*[]byte)
	defer returnBuffer(buf)
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

// The largest buffers that are kept in the pools.
const (
	maxPooledBytes   = 1 << 20
	maxPooledMembers = 1 << 8
)

var (
	canonicalizers = sync.Pool{New: func() any { return &canonicalizer{dec: jsontext.NewDecoder(new(bytes.Buffer))} }}
	buffers        = sync.Pool{New: func() any { return new([]byte) }}
)

func returnBuffer(buf *[]byte) {
	if cap(*buf) <= maxPooledBytes {
		buffers.Put(buf)
	}
}

// A canonicalizer translates one text that jsontext has found valid, so it need not check the syntax again.
type canonicalizer struct {
	dec *jsontext.Decoder
	src bytes.Buffer

	in  []byte
	at  int
	out []byte

	members []writtenMember // members already written of the open objects, outermost first
	scratch []byte          // used by sort
	text    []byte          // used by string
}

// A writtenMember is the position of a written member.
type writtenMember struct {
	name       []byte // unescaped
	start, end int    // in writer.out
}

func (w *canonicalizer) release() {
	if cap(w.scratch) > maxPooledBytes {
		w.scratch = nil
	}
	if cap(w.text) > maxPooledBytes {
		w.text = nil
	}
	if cap(w.members) > maxPooledMembers {
		w.members = nil
	}
	clear(w.members[:cap(w.members)]) // they refer to the input
	w.in, w.out, w.members = nil, nil, w.members[:0]
	canonicalizers.Put(w)
}

// checkSyntax returns what is wrong with raw, apart from its depth.
func (w *canonicalizer) checkSyntax(raw []byte) error {
	w.src = *bytes.NewBuffer(raw)
	w.dec.Reset(&w.src)
	defer func() { // w must not refer to raw afterwards
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

// peekByte skips white space and returns the next byte.
func (w *canonicalizer) peekByte() byte {
	for w.in[w.at] <= ' ' {
		w.at++
	}
	return w.in[w.at]
}

// writeValue writes the next value, which is nested depth levels deep.
func (w *canonicalizer) writeValue(depth int) error {
	c := w.peekByte()
	switch {
	case c == '"':
		w.writeString()
		return nil
	case c != '{' && c != '[':
		w.writeScalar()
		return nil
	case depth == MaxDepth:
		return errTooDeep
	case c == '[':
		return w.writeArray(depth + 1)
	}
	return w.writeObject(depth + 1)
}

func (w *canonicalizer) writeArray(depth int) error {
	w.out = append(w.out, '[')
	for w.at++; w.peekByte() != ']'; {
		if w.peekByte() == ',' {
			w.out = append(w.out, ',')
			w.at++
		}
		if err := w.writeValue(depth); err != nil {
			return err
		}
	}
	w.at++
	w.out = append(w.out, ']')
	return nil
}

func (w *canonicalizer) writeObject(depth int) error {
	w.out = append(w.out, '{')
	first, start := len(w.members), len(w.out)
	sorted := true
	for w.at++; w.peekByte() != '}'; {
		if w.peekByte() == ',' {
			w.out = append(w.out, ',')
			w.at++
			w.peekByte()
		}
		m := writtenMember{start: len(w.out)}
		name, copied := w.writeString()
		if m.name = name; copied {
			m.name = bytes.Clone(name)
		}
		w.peekByte() // the colon
		w.at++
		w.out = append(w.out, ':')
		if err := w.writeValue(depth); err != nil {
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
		w.sortMembers(members, start)
	}
	w.members = w.members[:first]
	w.out = append(w.out, '}')
	return nil
}

// sortMembers sorts the members that were written to w.out from start on.
func (w *canonicalizer) sortMembers(members []writtenMember, start int) {
	slices.SortFunc(members, func(a, b writtenMember) int { return bytes.Compare(a.name, b.name) })
	w.scratch = append(w.scratch[:0], w.out[start:]...)
	w.out = w.out[:start]
	for i, m := range members {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(w.out, w.scratch[m.start-start:m.end-start]...)
	}
}

// writeScalar writes the next value, a number, true, false or null, in its own spelling.
func (w *canonicalizer) writeScalar() {
	from := w.at
	for w.at < len(w.in) && bytes.IndexByte(delimiters, w.in[w.at]) < 0 {
		w.at++
	}
	w.out = append(w.out, w.in[from:w.at]...)
}

var delimiters = []byte(" \t\r\n,:]}")

// writeString writes the next string. It returns the unescaped string; if copied is true, that is valid only until the next
// call.
func (w *canonicalizer) writeString() (text []byte, copied bool) {
	from := w.at
	end := from + 1 + bytes.IndexByte(w.in[from+1:], '"')
	if escape := bytes.IndexByte(w.in[from:end], '\\'); escape >= 0 {
		copied = true
		// Go byte by byte: searching for a quote and a backslash behind each escape would cost the square of the
		// length.
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
	// Neither call can fail, because the text has been checked.
	w.text, _ = jsontext.AppendUnquote(w.text[:0], raw)
	w.out, _ = jsontext.AppendQuote(w.out, w.text)
	return w.text, true
}
