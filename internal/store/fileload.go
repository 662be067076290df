package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/store/segment"
)

// A logLoader makes logs in a transaction. If the transaction fails, their folders have to be removed.
type logLoader struct {
	file    *File
	log     *segment.Log // nil before the first log
	entries [][]byte
	size    int
	made    []logRow
}

// begin begins a log with that span.
func (l *logLoader) begin(name string, s Span) (err error) {
	if err := l.end(); err != nil {
		return err
	}
	if len(l.made) == 0 {
		if err := l.file.logs.beginMaking(); err != nil {
			return err
		}
	}
	row, log, err := l.file.logs.makeLog(name, s.First)
	if err == nil {
		l.log, l.made = log, append(l.made, row)
	}
	return err
}

// add adds an entry to the log.
func (l *logLoader) add(data []byte) error {
	l.entries = append(l.entries, data)
	if l.size += len(data); len(l.entries) >= MaxAppend || l.size >= maxBatchBytes {
		return l.flush()
	}
	return nil
}

func (l *logLoader) flush() error {
	if len(l.entries) == 0 {
		return nil
	}
	err := l.log.Load(l.entries...)
	clear(l.entries)
	l.entries, l.size = l.entries[:0], 0
	return err
}

// end makes the log durable.
func (l *logLoader) end() error {
	if l.log == nil {
		return nil
	}
	err := l.flush()
	if err == nil {
		err = l.log.Flush()
	}
	err = errors.Join(err, l.log.Close())
	l.log = nil
	return err
}

// finish ends the last log, and inserts the rows of all logs.
func (l *logLoader) finish(tx *fileTransaction) error {
	err := l.end()
	for i := range l.made {
		if err == nil {
			err = l.made[i].insert(tx)
		}
	}
	return err
}

// undo removes the folders of all logs.
func (l *logLoader) undo() {
	if l.log != nil {
		_ = l.log.Close()
		l.log = nil
	}
	for _, r := range l.made {
		_ = os.RemoveAll(filepath.Join(logsFolder(l.file.path), r.folder))
	}
	if ownfile.SyncFolder(logsFolder(l.file.path)) == nil { // no folder comes back without the note
		l.file.logs.endMaking()
	}
}

// unfinished returns the path of a file that is there while a logLoader works. No log has such a folder.
func (o *fileLogs) unfinished() string { return filepath.Join(logsFolder(o.file.path), "~unfinished") }

// beginMaking notes that a logLoader begins, for removeLeft.
func (o *fileLogs) beginMaking() error {
	if err := ownfile.MakeFolders(logsFolder(o.file.path)); err != nil {
		return err
	}
	f, err := ownfile.Open(o.unfinished(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return errors.Join(ownfile.SyncFolder(logsFolder(o.file.path)), ownfile.SyncFolder(filepath.Dir(o.file.path)))
}

// endMaking notes that the transaction of a logLoader has ended.
func (o *fileLogs) endMaking() { _ = os.Remove(o.unfinished()) }

// removeLeft removes the folders that an interrupted transaction of a logLoader has left. The file has no logs. If
// nothing was interrupted, the folders are logs of another file, perhaps the only copy, and stay.
func (o *fileLogs) removeLeft() error {
	_, err := os.Stat(o.unfinished())
	interrupted := err == nil
	left, err := o.listFolders()
	if err != nil {
		return err
	}
	for _, folder := range left {
		if !interrupted && segment.HasEntries(folder) {
			return o.file.wrapError(fmt.Errorf("%w: it has no logs, and the folder %s has some; move that folder away, or put the file that belongs to it in place",
				errRefused, logsFolder(o.file.path)))
		}
	}
	for _, folder := range left {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	return nil
}
