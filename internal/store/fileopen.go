package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// applicationID stands in the header of each file, so that one of somebody else's is
// never written to. It spells SwBd.
const applicationID = 0x53774264

// migrations make a file of one schema version into one of the next. The first makes an empty
// file into version 1. What has been released is never changed.
//
// Instants are microseconds since 1970; 0 is none.
var migrations = []string{
	`CREATE TABLE value (
		id      INTEGER PRIMARY KEY,
		grp     TEXT NOT NULL,
		name    TEXT NOT NULL,
		version INTEGER NOT NULL,
		expires INTEGER NOT NULL,
		sum     INTEGER NOT NULL,
		data    BLOB,
		UNIQUE (grp, name)
	);
	CREATE INDEX value_expires ON value (expires) WHERE expires > 0;
	CREATE TABLE meter (
		id    INTEGER PRIMARY KEY,
		grp   TEXT NOT NULL,
		name  TEXT NOT NULL,
		whole INTEGER NOT NULL,
		sum   INTEGER NOT NULL,
		UNIQUE (grp, name)
	);
	CREATE INDEX meter_whole ON meter (whole);
	CREATE TABLE log (
		id    INTEGER PRIMARY KEY,
		name  TEXT NOT NULL UNIQUE,
		first INTEGER NOT NULL,
		last  INTEGER NOT NULL,
		sum   INTEGER NOT NULL
	);
	CREATE TABLE entry (
		id   INTEGER PRIMARY KEY,
		sum  INTEGER NOT NULL,
		data BLOB
	);`,
	// Several entries stand in one row: data is one behind the other, and sizes how many bytes
	// each has, as uvarints; where it is empty, data is one entry.
	`ALTER TABLE entry ADD COLUMN sizes BLOB;`,
}

// busy is how long one who writes waits for another process that does.
const busy = 5 * time.Second

// schema is the text of the newest one, as SQLite keeps it.
var schema = sync.OnceValues(func() (string, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // each connection has a memory of its own
	for _, text := range migrations {
		if _, err := db.Exec(text); err != nil {
			return "", err
		}
	}
	return readSchema(context.Background(), db)
})

// A rower is a database or a transaction.
type rower interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readSchema reads the text of the schema, in an order that VACUUM leaves alone.
func readSchema(ctx context.Context, db rower) (text string, err error) {
	err = db.QueryRowContext(ctx, `SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema ORDER BY name)`).Scan(&text)
	return text, err
}

// OpenFile opens the file at path, and makes it, and its folder, where there is none.
// Only its owner may read it.
//
// What is no file of ours, of a newer version or damaged is left as it is, and is
// ErrUnavailable, with what to do about it. A small file is checked as a whole.
func OpenFile(path string, o FileOptions) (*File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &File{path: path, log: o.Log, asked: make(chan *request, maxBatch), ended: make(chan struct{})}
	if err := f.create(); err != nil {
		return nil, f.failed(err)
	}
	opened.Lock()
	defer opened.Unlock()
	if opened.files[path] == 0 {
		if err := cmp.Or(checkFormat(path), checkWAL(path)); err != nil {
			return nil, f.failed(err)
		}
	}
	w, err := f.open()
	if err != nil {
		return nil, f.failed(err)
	}
	opened.files[path]++
	go w.run()
	return f, nil
}

// create makes a file where there is none: under another name first, so that whoever sees
// one sees a whole one.
func (f *File) create() error {
	info, err := os.Stat(f.path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%w: it is a folder; name a file", errRefused)
	case err == nil && info.Size() <= 1: // of one byte, SQLite would make a new one
		return fmt.Errorf("%w: it is empty, which no store ever is; delete it if nothing was kept in it", errRefused)
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return err
	case size(f.path+"-wal") > 0:
		return fmt.Errorf("%w: it is gone, and what was written last is still in %s-wal; put it back, or delete that too", errRefused, f.path)
	}
	dir, name := filepath.Split(f.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, name+".new-*") // that only its owner may read
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err := file.Close(); err != nil {
		return err
	}
	fresh := File{path: file.Name()}
	w, err := fresh.open()
	if err != nil {
		return err
	}
	if err := errors.Join(fresh.reads.Close(), w.close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), f.path); err != nil && !errors.Is(err, os.ErrExist) { // another process was first
		return err
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(filepath.Clean(dir))))
}

// checkFormat looks at the format's versions for writing and for reading: of one for writing
// that it does not know SQLite makes no error, but a file that is never written to. A file
// of which nothing can be read here is SQLite's to speak of.
//
// The format: https://sqlite.org/fileformat2.html#file_format_version_numbers.
func checkFormat(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	const wal = 2
	var header [20]byte
	if _, err := io.ReadFull(file, header[:]); err == nil && string(header[:6]) == "SQLite" && header[18] > wal {
		return damaged("version %d of its format", header[18])
	}
	return nil
}

// syncDir makes what was created in the folder durable.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil // folders cannot be synced, and need not be
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// open opens the connections, and brings the file to the version that we know.
func (f *File) open() (_ *writer, err error) {
	w := &writer{File: f, durable: true, unswept: sweepAfter, tx: transaction{stmts: map[string]*sql.Stmt{}}}
	if w.db, err = f.connect("synchronous(FULL)", "cache_size(-1024)"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = w.close()
		}
	}()
	if w.tx.conn, err = w.db.Conn(context.Background()); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(busy); ; {
		err := w.migrate()
		if err == nil {
			err = w.mark()
		}
		if err == nil {
			break
		}
		// Going over to WAL mode does not wait for another process that does so too.
		if !isBusy(err) || time.Now().After(deadline) {
			return nil, err
		}
		_ = w.tx.pragma(`ROLLBACK`)
		<-time.After(10 * time.Millisecond)
	}
	if f.reads, err = f.connect("query_only(1)", "cache_size(-512)"); err != nil {
		return nil, err
	}
	f.reads.SetMaxOpenConns(4)
	f.reads.SetMaxIdleConns(2)
	f.reads.SetConnMaxIdleTime(time.Minute)
	return w, w.checkFiles()
}

// close closes the writer's connection.
func (w *writer) close() error {
	var err error
	for _, s := range w.tx.stmts {
		err = errors.Join(err, s.Close())
	}
	if w.tx.conn != nil {
		err = errors.Join(err, w.tx.conn.Close())
	}
	return errors.Join(err, w.db.Close())
}

// pageSize is that of a new file, in bytes: each page that a commit has touched is written
// twice, to the log and then to the file, and what is appended touches half as many as of
// SQLite's own 4,096. Larger ones cost more where many logs are written to at once.
const pageSize = 8192

// connect returns connections that have the pragmas set.
func (f *File) connect(pragmas ...string) (*sql.DB, error) {
	q := url.Values{"_pragma": append([]string{
		fmt.Sprintf("page_size(%d)", pageSize),
		fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()),
		"temp_store(MEMORY)",
	}, pragmas...)}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(f.path), RawQuery: q.Encode()}
	return sql.Open("sqlite", u.String())
}

// migrate looks whose the file is, and brings it to the newest version.
func (w *writer) migrate() error {
	var app, version, tables int64
	for text, into := range map[string]*int64{
		`PRAGMA application_id`:              &app,
		`PRAGMA user_version`:                &version,
		`SELECT count(*) FROM sqlite_master`: &tables,
	} {
		if err := w.tx.conn.QueryRowContext(context.Background(), text).Scan(into); err != nil {
			return err
		}
	}
	newest := int64(len(migrations))
	switch {
	case app != applicationID && (app != 0 || version != 0 || tables != 0):
		return fmt.Errorf("%w: it is an SQLite database of another program; name another file", errRefused)
	case version > newest:
		return fmt.Errorf("%w: its schema is version %d, and this Switchboard knows up to %d; use the version that wrote it, or a later one", errRefused, version, newest)
	}
	// What is not ours has not been written to until here.
	for _, text := range []string{
		`PRAGMA journal_mode = WAL`,
		fmt.Sprintf(`PRAGMA journal_size_limit = %d`, maxWAL/4),
	} {
		if err := w.tx.pragma(text); err != nil {
			return err
		}
	}
	if version == newest {
		return w.checkSmall()
	}
	if err := w.tx.pragma(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	// Another process may have been first.
	if err := w.tx.conn.QueryRowContext(context.Background(), `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	for ; version < newest; version++ {
		if err := w.tx.pragma(migrations[version]); err != nil {
			return err
		}
	}
	return cmp.Or(
		w.tx.pragma(fmt.Sprintf(`PRAGMA application_id = %d`, applicationID)),
		w.tx.pragma(fmt.Sprintf(`PRAGMA user_version = %d`, newest)),
		w.tx.pragma(`COMMIT`))
}

// smallFile is how many bytes are checked whenever they are opened: in a fraction of a second.
const smallFile = 16 << 20

// checkSmall finds in a small file what only a look at all of it finds: a damaged index
// gives too little, and no error.
func (w *writer) checkSmall() error {
	if size(w.path)+size(w.path+"-wal") > smallFile {
		return nil
	}
	var found string
	if err := w.tx.conn.QueryRowContext(context.Background(), `PRAGMA integrity_check(1)`).Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("%w: %s", errDamaged, found)
	}
	return nil
}

// errRefused says that the file is not for us.
var errRefused = errors.New("it is not opened")

// errDamaged says that something was read that was never written.
var errDamaged = errors.New("it is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s is not what was written", errDamaged, fmt.Sprintf(format, args...))
}

// failed says of what has gone wrong which file it is, and what to do about it.
func (f *File) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrConflict), errors.Is(err, ErrInvalid), errors.Is(err, ErrUnavailable),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("%w: %s: %s", ErrUnavailable, f.path, explain(err))
}

// explain puts what SQLite says into words, and says what to do next.
func explain(err error) string {
	const restore = "; put it aside, and a backup or an export in its place"
	if errors.Is(err, errDamaged) {
		return err.Error() + restore
	}
	full := "the disk is full; it goes on by itself once there is space"
	readOnly := "it cannot be written to: the file and its folder have to be writable (" + err.Error() + ")"
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return full
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return readOnly
	}
	switch code(err) & 0xff {
	case sqlite3.SQLITE_FULL:
		return full
	case sqlite3.SQLITE_NOTADB:
		return "it is no store, or its beginning is damaged" + restore
	case sqlite3.SQLITE_CORRUPT:
		return "it is damaged" + restore
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return readOnly
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Sprintf("another process has been writing to it for %s", busy)
	case sqlite3.SQLITE_IOERR:
		return "the disk does not do what it should: " + err.Error()
	}
	return strings.TrimSpace(err.Error())
}

func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

func isBusy(err error) bool { return code(err)&0xff == sqlite3.SQLITE_BUSY }
