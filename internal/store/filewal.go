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

// openFiles counts the Files of this process by path. A process that closes a file descriptor loses all its
// locks on that file, so a file that is in use here must not be opened for a look.
var openFiles = struct {
	sync.Mutex
	files map[string]int
}{files: map[string]int{}}

// checkWAL finds out whether the WAL has lost pages that another process had written. SQLite reads the WAL up
// to the first incomplete page, and takes the rest for the result of a crash: so a WAL that was truncated or
// damaged would lose acknowledged changes silently. The index beside it says how far the WAL went. SQLite
// rebuilds that index, so checkWAL reads it before SQLite opens the file. After a restart of the machine the
// index says nothing.
//
// The formats: https://sqlite.org/fileformat2.html#walformat and https://sqlite.org/walformat.html#walidxfmt.
func checkWAL(path string) error {
	for {
		index, err := readWALIndex(path)
		if err != nil || index == nil || index.pages <= index.checkpointed {
			return err
		}
		good, err := index.validPages(path + "-wal")
		if err != nil || good >= index.pages {
			return err
		}
		if again, err := readWALIndex(path); err != nil || again == nil || *again != *index {
			continue // another process has the file open
		}
		return fmt.Errorf("%w: of the %d newest pages, in %s-wal, %d cannot be read (to continue without them, delete %s-shm)",
			errDamaged, index.pages, path, index.pages-good, path)
	}
}

// A walIndex is what the index says about the WAL.
type walIndex struct {
	pages, checkpointed uint32 // pages written; how many of them have been moved into the file
	salt                [8]byte
}

// readWALIndex reads the index; nil if there is none or it says nothing.
func readWALIndex(path string) (*walIndex, error) {
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
	if info.ModTime().Before(machineStart()) {
		return nil, nil
	}
	var b [100]byte
	if _, err := io.ReadFull(file, b[:]); err != nil || !bytes.Equal(b[:48], b[48:96]) || b[12] == 0 {
		return nil, nil //nolint:nilerr // it is being written, or was never written: SQLite rebuilds it
	}
	return &walIndex{
		pages:        binary.NativeEndian.Uint32(b[16:]),
		checkpointed: binary.NativeEndian.Uint32(b[96:]),
		salt:         [8]byte(b[32:40]),
	}, nil
}

// validPages returns how many pages of the WAL are intact.
func (x *walIndex) validPages(path string) (pages uint32, err error) {
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

// machineStart returns when the machine started; the zero time if that is unknown.
func machineStart() time.Time {
	var seconds float64
	if b, err := os.ReadFile("/proc/uptime"); err == nil {
		if _, err := fmt.Sscan(string(b), &seconds); err == nil {
			return time.Now().Add(-time.Duration(seconds * float64(time.Second)))
		}
	}
	return time.Time{}
}
