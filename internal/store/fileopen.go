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
	"strings"
	"sync"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/store/segment"
)

// applicationID is in the header of each file, so that a file of another program is never written to. It
// spells SwBd.
const applicationID = 0x53774264

// migrations change a file of one schema version to the next version. The first one changes an empty file to
// version 1. A released migration never changes.
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
	// A row can hold several entries: data is their concatenation, and sizes holds their lengths in bytes,
	// as uvarints. If sizes is empty, data is one entry.
	`ALTER TABLE entry ADD COLUMN sizes BLOB;`,
	// The entries are in the files of package segment. See migrateFrom.
	`DROP TABLE entry;
	DROP TABLE log;
	CREATE TABLE log (
		id     INTEGER PRIMARY KEY,
		name   TEXT NOT NULL UNIQUE,
		folder TEXT NOT NULL,
		mark   TEXT NOT NULL,
		sum    INTEGER NOT NULL
	);`,
	// See account.go. An account that is never forgotten ends at the largest integer. A hold is named by its id; its data are its
	// amounts, and are empty if it is settled.
	`CREATE TABLE account (
		id      INTEGER PRIMARY KEY,
		grp     TEXT NOT NULL,
		name    TEXT NOT NULL,
		settled INTEGER NOT NULL,
		held    INTEGER NOT NULL,
		ends    INTEGER NOT NULL,
		sum     INTEGER NOT NULL,
		UNIQUE (grp, name)
	);
	CREATE INDEX account_ends ON account (ends) WHERE held = 0;
	CREATE TABLE hold (
		id      INTEGER PRIMARY KEY,
		grp     TEXT NOT NULL,
		name    TEXT NOT NULL,
		expires INTEGER NOT NULL,
		sum     INTEGER NOT NULL,
		data    BLOB NOT NULL,
		UNIQUE (grp, name)
	);
	CREATE INDEX hold_expires ON hold (expires);`,
}

// busyTimeout is how long a writer waits for a writer in another process.
const busyTimeout = 5 * time.Second

// newestSchema is the text of the newest schema, as SQLite stores it.
var newestSchema = sync.OnceValues(func() (string, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // each connection would have a database of its own
	for _, text := range migrations {
		if _, err := db.Exec(text); err != nil {
			return "", err
		}
	}
	return readSchema(context.Background(), db)
})

// A rowQuerier is a database or a transaction.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readSchema reads the text of the schema, in an order that VACUUM does not change.
func readSchema(ctx context.Context, db rowQuerier) (text string, err error) {
	err = db.QueryRowContext(ctx, `SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema ORDER BY name)`).Scan(&text)
	return text, err
}

// OpenFile opens the file at path. It makes the file and its folder if there is none; only the owner may read
// the file.
//
// A file of another program, of a newer version, or that is damaged is not changed. The error is then
// ErrUnavailable and says what to do. A small file is checked completely.
func OpenFile(path string, o FileOptions) (*File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 { // its WAL and its logs are beside the file
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &File{path: path, log: o.Log, glance: o.Glance, changes: make(chan *fileChange, maxBatch), writerDone: make(chan struct{})}
	f.logs.file, f.file = f, f
	if err := f.createFile(); err != nil {
		return nil, f.wrapError(err)
	}
	openFiles.Lock()
	defer openFiles.Unlock()
	if openFiles.files[path] == 0 {
		if err := cmp.Or(checkFormat(path), checkWAL(path)); err != nil {
			return nil, f.wrapError(err)
		}
	}
	w, err := f.openConnections()
	if err != nil {
		return nil, f.wrapError(err)
	}
	openFiles.files[path]++
	go w.commitBatches()
	return f, nil
}

// createFile makes a file if there is none: under another name first, so that no process ever sees half a
// file.
func (f *File) createFile() error {
	info, err := os.Stat(f.path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("%w: it is a folder; name a file", errRefused)
	case err == nil && info.Size() <= 1: // SQLite would overwrite a file of one byte
		return fmt.Errorf("%w: it is empty, and no store is; delete it if nothing was stored in it", errRefused)
	case err == nil:
		return nil
	case f.glance || !errors.Is(err, os.ErrNotExist):
		return err
	case fileSize(f.path+"-wal") > 0:
		return fmt.Errorf("%w: it is gone, and its newest changes are still in %s-wal; put it back, or delete that file too", errRefused, f.path)
	case hasFiles(logsFolder(f.path)):
		return fmt.Errorf("%w: it is gone, and its logs are still in %s; put it back, or move that folder away too", errRefused, logsFolder(f.path))
	}
	dir, name := filepath.Split(f.path)
	if err := ownfile.MakeFolders(dir); err != nil {
		return err
	}
	file, err := ownfile.CreateTemp(dir, name+".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err := file.Close(); err != nil {
		return err
	}
	fresh := File{path: file.Name()}
	fresh.logs.file = &fresh
	w, err := fresh.openConnections()
	if err != nil {
		return err
	}
	if err := errors.Join(fresh.reads.Close(), w.closeConnection()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), f.path); err != nil && !errors.Is(err, os.ErrExist) { // ErrExist: another process was first
		return err
	}
	return errors.Join(ownfile.SyncFolder(dir), ownfile.SyncFolder(filepath.Dir(filepath.Clean(dir))))
}

// hasFiles reports whether there is anything in the folder.
func hasFiles(folder string) bool {
	all, err := os.ReadDir(folder)
	return err == nil && len(all) > 0
}

// checkFormat checks the version of the file format: SQLite opens a file with an unknown write version
// without an error, but never writes to it. If the header cannot be read here, SQLite reports that.
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
		return damagedError("version %d of its format", header[18])
	}
	return nil
}

// openConnections opens the connections, and migrates the file to the newest schema version.
func (f *File) openConnections() (_ *fileWriter, err error) {
	w := &fileWriter{File: f, durable: true, expiringWrites: sweepInterval, tx: fileTransaction{stmts: map[string]*sql.Stmt{}}}
	pragmas := []string{"synchronous(FULL)", "cache_size(-1024)"}
	if f.glance {
		pragmas = append(pragmas, "query_only(1)")
	}
	if w.db, err = connectFile(f.path, pragmas...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = w.closeConnection()
		}
	}()
	if w.tx.conn, err = w.db.Conn(context.Background()); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(busyTimeout); ; {
		err := w.migrateSchema()
		if err == nil {
			err = w.readOrMakeMark()
		}
		if err == nil {
			break
		}
		// Switching to WAL mode does not wait for another process that does the same.
		if !isBusy(err) || time.Now().After(deadline) {
			return nil, err
		}
		_ = w.tx.pragma(`ROLLBACK`)
		<-time.After(10 * time.Millisecond)
	}
	if w.shrink {
		w.logs.endMaking()
		w.shrinkFile()
	}
	if f.reads.DB, err = connectFile(f.path, "query_only(1)", "cache_size(-512)"); err != nil {
		return nil, err
	}
	f.reads.SetMaxOpenConns(4)
	f.reads.SetMaxIdleConns(2)
	f.reads.SetConnMaxIdleTime(time.Minute)
	return w, w.checkFiles()
}

// closeConnection closes the writer's connection.
func (w *fileWriter) closeConnection() error {
	var err error
	for _, s := range w.tx.stmts {
		err = errors.Join(err, s.Close())
	}
	if w.tx.conn != nil {
		err = errors.Join(err, w.tx.conn.Close())
	}
	return errors.Join(err, w.db.Close())
}

// pageSize is the page size of a new file, in bytes. A commit writes each changed page twice: to the WAL and
// then to the file. An append changes half as many pages as with SQLite's own 4,096 bytes. Larger pages cost
// more if many logs are written at the same time.
const pageSize = 8192

// connectFile returns connections with the pragmas set.
func connectFile(path string, pragmas ...string) (*sql.DB, error) {
	q := url.Values{"_pragma": append([]string{
		fmt.Sprintf("page_size(%d)", pageSize),
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"temp_store(MEMORY)",
	}, pragmas...)}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}
	return sql.Open("sqlite", u.String())
}

// migrateSchema checks that the file is a store, and migrates it to the newest schema version.
func (w *fileWriter) migrateSchema() error {
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
	case w.glance && version != newest:
		return fmt.Errorf("%w: its schema is version %d, and it is not migrated for a glance", errRefused, version)
	case w.glance:
		return nil
	}
	// Nothing was written up to here, so a file of another program is unchanged.
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
	// Another process may have migrated the file first.
	if err := w.tx.conn.QueryRowContext(context.Background(), `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	for ; version < newest; version++ {
		if err := w.migrateFrom(version); err != nil {
			return err
		}
	}
	return cmp.Or(
		w.tx.pragma(fmt.Sprintf(`PRAGMA application_id = %d`, applicationID)),
		w.tx.pragma(fmt.Sprintf(`PRAGMA user_version = %d`, newest)),
		w.tx.pragma(`COMMIT`))
}

// smallFile is the largest file, in bytes, that is checked completely at each opening: that takes a fraction of a
// second.
const smallFile = 16 << 20

// checkSmall checks a small file completely: a damaged index makes queries return too little without an
// error, and only a complete check finds that.
func (w *fileWriter) checkSmall() error {
	if fileSize(w.path)+fileSize(w.path+"-wal") > smallFile {
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

// errRefused says that the file is not a store that this program can open.
var errRefused = errors.New("it is not opened")

// errDamaged says that the file contains something that was never written.
var errDamaged = segment.ErrDamaged

func damagedError(format string, args ...any) error {
	return fmt.Errorf("%w: %s is not what was written", errDamaged, fmt.Sprintf(format, args...))
}

// wrapError adds the path of the file and the remedy to an error.
func (f *File) wrapError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrConflict), errors.Is(err, ErrInvalid), errors.Is(err, ErrUnavailable),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("%w: %s: %s", ErrUnavailable, f.path, explainError(err))
}

// explainError turns an error of SQLite into plain words, and says what to do next.
func explainError(err error) string {
	const restore = "; put it aside, and a backup or an export in its place"
	if errors.Is(err, errDamaged) {
		return err.Error() + restore
	}
	full := "the disk is full; it goes on by itself once there is space"
	if errors.Is(err, segment.ErrReplaced) {
		return err.Error() + "; put it back, or restart Switchboard to use what is there"
	}
	readOnly := "it cannot be written to: the file and its folder have to be writable (" + err.Error() + ")"
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return full
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return readOnly
	}
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_FULL:
		return full
	case sqlite3.SQLITE_NOTADB:
		return "it is no store, or its beginning is damaged" + restore
	case sqlite3.SQLITE_CORRUPT:
		return "it is damaged" + restore
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return readOnly
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Sprintf("another process has been writing to it for %s", busyTimeout)
	case sqlite3.SQLITE_IOERR:
		return "the disk does not do what it should: " + err.Error()
	}
	return strings.TrimSpace(err.Error())
}

func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

func isBusy(err error) bool { return sqliteCode(err)&0xff == sqlite3.SQLITE_BUSY }
