package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// opened counts the Files of this process by path: a process that closes a file lets go
// of all locks that it has on it, so that one which is in use must not be looked at.
var opened = struct {
	sync.Mutex
	files map[string]int
}{files: map[string]int{}}

// checkWAL finds out whether the WAL has lost what another process had written to it.
// SQLite reads it up to the first page that is not whole, and takes the rest for what
// a crash has cut off: a WAL that was truncated or damaged would lose what was acknowledged
// without a word. How far it went stands in the index beside it, which SQLite makes
// anew; so it is looked at before. After a restart of the machine it says nothing.
//
// The formats: https://sqlite.org/fileformat2.html#walformat and
// https://sqlite.org/walformat.html#walidxfmt.
func checkWAL(path string) error {
	for {
		index, err := readIndex(path)
		if err != nil || index == nil || index.pages <= index.moved {
			return err
		}
		good, err := index.whole(path + "-wal")
		if err != nil || good >= index.pages {
			return err
		}
		if again, err := readIndex(path); err != nil || again == nil || *again != *index {
			continue // another process has the file open
		}
		return fmt.Errorf("%w: of the %d pages in %s-wal, which were written last, %d cannot be read (to go on without them, delete %s-shm)",
			errDamaged, index.pages, path, index.pages-good, path)
	}
}

// A walIndex is what the index says of the WAL.
type walIndex struct {
	pages, moved uint32 // that were written; and of these, moved into the file
	salt         [8]byte
}

// readIndex reads it; nil where there is none that counts.
func readIndex(path string) (*walIndex, error) {
	file, err := os.Open(path + "-shm")
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.ModTime().Before(started()) {
		return nil, nil
	}
	var b [100]byte
	if _, err := io.ReadFull(file, b[:]); err != nil || !bytes.Equal(b[:48], b[48:96]) || b[12] == 0 {
		return nil, nil //nolint:nilerr // it is being written, or never was: SQLite makes it anew
	}
	return &walIndex{
		pages: binary.NativeEndian.Uint32(b[16:]),
		moved: binary.NativeEndian.Uint32(b[96:]),
		salt:  [8]byte(b[32:40]),
	}, nil
}

// whole says how many pages of the WAL are what was written.
func (x *walIndex) whole(path string) (pages uint32, err error) {
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	in := bufio.NewReaderSize(file, 256<<10)
	var head [32]byte
	if _, err := io.ReadFull(in, head[:]); err != nil || [8]byte(head[16:24]) != x.salt {
		return 0, nil //nolint:nilerr // what cannot be read is not whole
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[3]&1 == 1 {
		order = binary.BigEndian
	}
	var s0, s1 uint32
	add := func(b []byte) {
		for ; len(b) >= 8; b = b[8:] {
			s0 += order.Uint32(b) + s1
			s1 += order.Uint32(b[4:]) + s0
		}
	}
	size := binary.BigEndian.Uint32(head[8:])
	if size < 512 || size > 65536 {
		return 0, nil
	}
	add(head[:24])
	frame := make([]byte, 24+size)
	for ; pages < x.pages; pages++ {
		if _, err := io.ReadFull(in, frame); err != nil || [8]byte(frame[8:16]) != x.salt {
			return pages, nil //nolint:nilerr // what cannot be read is not whole
		}
		add(frame[:8])
		add(frame[24:])
		if binary.BigEndian.Uint32(frame[16:]) != s0 || binary.BigEndian.Uint32(frame[20:]) != s1 {
			return pages, nil
		}
	}
	return pages, nil
}

// started is when the machine was, as far as that can be known.
func started() time.Time {
	var seconds float64
	if b, err := os.ReadFile("/proc/uptime"); err == nil {
		if _, err := fmt.Sscan(string(b), &seconds); err == nil {
			return time.Now().Add(-time.Duration(seconds * float64(time.Second)))
		}
	}
	return time.Time{}
}
