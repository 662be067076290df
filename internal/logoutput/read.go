package logoutput

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Own is the name of Switchboard's own records among the names of servers.
const Own = "switchboard"

// maxLine limits the bytes of a line that is read.
const maxLine = 256 << 10

// pollInterval is how often Follow looks for new lines.
const pollInterval = 250 * time.Millisecond

// A Line is one line of the files.
type Line struct {
	Time time.Time // the zero time if the line has none
	From string    // the id of a server, or Own
	Raw  []byte    // without a line break

	ofServer bool // a server's line and no record of ours: a server may have the name Own
}

// A LogReader reads the files of a data folder.
type LogReader struct {
	folder string
	names  []string // nil means everything
}

// NewLogReader returns a reader of the lines of these servers, or of Own; without names it reads everything.
func NewLogReader(data string, names ...string) *LogReader {
	return &LogReader{Folder(data), names}
}

// A logSource is a file with lines. The one that was rotated from it belongs to it.
type logSource struct {
	path, name string
	ofServer   bool
}

// Names returns the names with files, sorted. The files need not be readable.
func (r *LogReader) Names() ([]string, error) {
	all, err := r.findSources()
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// findSources returns the files that are there.
func (r *LogReader) findSources() (all []logSource, err error) {
	own := r.sourcesOf(Own)[0]
	switch _, err := os.Stat(own.path); {
	case err == nil:
		all = append(all, own)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	files, err := os.ReadDir(filepath.Join(r.folder, serverFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without the folder, no server has written
		return nil, err
	}
	for _, f := range files {
		if id, ok := strings.CutSuffix(f.Name(), fileEnding); ok {
			all = append(all, logSource{serverFile(r.folder, id), id, true})
		}
	}
	return all, nil
}

// sourcesOf returns the files that a name can have. That of Own is the first.
func (r *LogReader) sourcesOf(name string) (all []logSource) {
	if name == Own {
		all = []logSource{{filepath.Join(r.folder, ownFile), Own, false}}
	}
	return append(all, logSource{serverFile(r.folder, name), name, true})
}

// sources returns the files that the reader reads now.
func (r *LogReader) sources() (all []logSource, err error) {
	if r.names == nil {
		return r.findSources()
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(r.names))) {
		all = append(all, r.sourcesOf(name)...)
	}
	return all, nil
}

// Read returns the last lines of all files, at most limit and none before since, in the order of their times. 0 as the
// limit means all of them. It also returns where the files end, for Follow.
func (r *LogReader) Read(since time.Time, limit int) ([]Line, *Position, error) {
	at := &Position{files: map[string]filePosition{}}
	sources, err := r.sources()
	if err != nil {
		return nil, nil, err
	}
	var all []Line
	for _, s := range sources {
		own, end, err := s.read()
		if err != nil {
			return nil, nil, err
		}
		at.files[s.path] = end
		own = slices.DeleteFunc(own, func(e Line) bool { return e.Time.Before(since) })
		all = append(all, lastLines(own, limit)...)
	}
	sortLines(all)
	return lastLines(all, limit), at, nil
}

// maxReads limits how often a file is read anew because it was rotated meanwhile.
const maxReads = 3

// read returns all lines of the file and of the one that was rotated from it, and where the file ends.
func (s logSource) read() (entries []Line, end filePosition, err error) {
	for range maxReads {
		before, err := s.readFrom(s.path+rotated, 0)
		if err != nil {
			return nil, end, err
		}
		now, err := s.readFrom(s.path, 0)
		if err != nil {
			return nil, end, err
		}
		entries, end = append(before.lines, now.lines...), now.end
		moved, err := os.Stat(s.path + rotated)
		if absent := errors.Is(err, fs.ErrNotExist); absent == (before.end.info == nil) && (absent || err == nil && os.SameFile(moved, before.end.info)) {
			break // otherwise the lines that were moved between the two reads are in neither
		}
	}
	return entries, end, nil
}

func lastLines(all []Line, limit int) []Line {
	if limit > 0 && len(all) > limit {
		return slices.Clone(all[len(all)-limit:]) // the others can be released
	}
	return all
}

func sortLines(all []Line) {
	slices.SortStableFunc(all, func(a, b Line) int { return a.Time.Compare(b.Time) })
}

// A Position is where the files of a reader end.
type Position struct{ files map[string]filePosition } // by path

// A filePosition is a place in one file.
type filePosition struct {
	info   os.FileInfo // of the file; nil if there was none
	offset int64
}

// Follow calls print with new lines, until ctx is done or print fails. It follows files that are rotated, removed and made anew, and,
// without names, those of further servers.
func (r *LogReader) Follow(ctx context.Context, at *Position, print func([]Line) error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		sources, err := r.sources()
		if err != nil {
			return err
		}
		var all []Line
		for _, s := range sources {
			entries, end, err := s.readNew(at.files[s.path])
			if err != nil {
				return err
			}
			at.files[s.path] = end
			all = append(all, entries...)
		}
		if len(all) == 0 {
			continue
		}
		sortLines(all)
		if err := print(all); err != nil {
			return err
		}
	}
}

// readNew returns the lines behind a position, and the position behind them.
func (s logSource) readNew(at filePosition) ([]Line, filePosition, error) {
	from := at.offset
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, at, nil
	case err != nil:
		return nil, at, err
	case at.info == nil || !os.SameFile(info, at.info): // made or rotated since then
		var rest part
		if before, err := os.Stat(s.path + rotated); at.info != nil && err == nil && os.SameFile(before, at.info) {
			if rest, err = s.readFrom(s.path+rotated, at.offset); err != nil {
				return nil, at, err
			}
		}
		now, err := s.readFrom(s.path, 0)
		return append(rest.lines, now.lines...), now.end, err
	case info.Size() < at.offset: // it was cut
		from = 0
	case info.Size() == at.offset:
		return nil, at, nil
	}
	now, err := s.readFrom(s.path, from)
	return now.lines, now.end, err
}

// A part is a part of a file, up to its end.
type part struct {
	lines []Line
	end   filePosition
}

// readFrom returns the whole lines of a file behind offset. A file that does not exist has none.
func (s logSource) readFrom(path string, offset int64) (p part, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	defer f.Close() //nolint:errcheck // it was only read from
	p.end.offset = offset
	if p.end.info, err = f.Stat(); err != nil {
		return p, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return p, err
	}
	lines := bufio.NewReaderSize(io.LimitReader(f, 2*maxFile), maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
			p.end.offset += int64(len(line))
			if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
				p.lines = append(p.lines, Line{timeOf(line), s.name, bytes.Clone(line), s.ofServer})
			}
		case errors.Is(err, io.EOF): // a line that is not whole is read the next time
			return p, nil
		default:
			return p, err
		}
	}
}

// timeOf returns the time of a line; the zero time if it has none.
func timeOf(line []byte) time.Time {
	rest, ok := bytes.CutPrefix(line, []byte(`{"time":"`))
	if !ok {
		return time.Time{}
	}
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	at, _ := time.Parse(time.RFC3339Nano, string(text)) // otherwise it has no time
	return at
}

// textTime is the form of times in Text, in local time.
const textTime = "2006-01-02 15:04:05.000"

// Text returns the entry for people: its time, and the record or the line of the server. The name is not in it.
func (e Line) Text() (when, text string) {
	if !e.Time.IsZero() {
		when = e.Time.Local().Format(textTime)
	}
	var l serverText
	if e.ofServer && json.Unmarshal(e.Raw, &l) == nil && l.Server != "" {
		if l.LeftOut > 0 {
			text = "(" + count(l.LeftOut) + " left out) "
		}
		return when, text + l.Text
	}
	return when, recordText(e.Raw)
}

func count(lines int) string {
	n, _ := json.Marshal(lines) // a number can be encoded
	if lines == 1 {
		return string(n) + " line"
	}
	return string(n) + " lines"
}

// recordText returns a record of ours as level, message and key=value pairs; a line that is no record as it is.
func recordText(line []byte) string {
	d := json.NewDecoder(bytes.NewReader(line))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return string(line)
	}
	var level, message string
	var attrs strings.Builder
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return string(line)
		}
		shown := string(value)
		var text string
		if json.Unmarshal(value, &text) == nil {
			if shown = text; text == "" || strings.ContainsAny(text, ` "=`) || !isPrintable(text) {
				shown = strconv.Quote(text)
			}
		}
		switch key {
		case "time", "pid":
		case "level":
			level = text
		case "msg":
			if message = text; !isPrintable(text) {
				message = shown
			}
		default:
			attrs.WriteString(" " + key.(string) + "=" + shown)
		}
	}
	return cmp.Or(level, "INFO") + " " + message + attrs.String()
}

// isPrintable reports whether the text has no character that could control a terminal or begin a line.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// JSON returns the line as JSON. A line that is none, because the disk was full in its middle, becomes a text in an object.
func (e Line) JSON() []byte {
	if json.Valid(e.Raw) {
		return e.Raw
	}
	text, err := json.Marshal(struct {
		From    string `json:"from"`
		Damaged string `json:"damaged"`
	}{e.From, string(e.Raw)})
	if err != nil {
		return nil // it has no value that cannot be encoded
	}
	return text
}
