package preview

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// ReadTool is our own tool that reads the rest of a result.
const ReadTool = "switchboard_read"

// Tool is the definition of ReadTool.
var Tool = &switchboard.Tool{ID: switchboard.ToolID{Name: ReadTool}, Definition: []byte(`{"name":"` + ReadTool + `","description":"Reads on in a result that was too long. The preview of such a result gives its handle.",` +
	`"inputSchema":{"type":"object","properties":{"handle":{"type":"string"},` +
	`"range":{"type":"string","description":"bytes, such as 8000-16000"},` +
	`"path":{"type":"string","description":"a JSON value, such as /items/0"},` +
	`"search":{"type":"string","description":"text to find"}},"required":["handle"]},` +
	`"annotations":{"readOnlyHint":true},"_meta":{"anthropic/alwaysLoad":true}}`)}

// Limits of a piece.
const (
	defaultPiece  = 8000 // bytes, if no end is given
	minPiece      = 1000
	pieceOverhead = 300 // bytes of the line before the piece
	maxMatches    = 20
	matchContext  = 80 // bytes before and after a match
)

// A ReadRequest is a request to read a part of a result.
type ReadRequest struct {
	Handle string

	path        string
	hasPath     bool
	from, to    int // to is 0 if it is not given
	search      string
	hasFragment bool // search is given
}

// ParseReadRequest reads the arguments of ReadTool, an object that was scanned. It accepts every spelling
// that has one meaning. The error is a *switchboard.Error that shows the right form.
func ParseReadRequest(args []byte) (a ReadRequest, err error) {
	for name, raw := range wire.Members(args) {
		text, ok := wire.String(raw)
		switch name {
		case "handle":
			a.Handle = text
		case "path":
			a.path, a.hasPath = text, ok
		case "search":
			a.search, a.hasFragment = strings.TrimSpace(text), ok && strings.TrimSpace(text) != ""
		case "range":
			if !ok { // [8000,16000], or 8000
				text = strings.NewReplacer("[", "", "]", "", ",", "-", " ", "").Replace(string(raw))
			}
			if a.from, a.to, ok = parseRange(text); !ok {
				return a, badArguments(`"range" is of bytes, such as "8000-16000" or "8000-"`)
			}
		default:
			return a, badArguments("%.64q is unknown; the arguments are handle, range, path and search", name)
		}
		if !ok {
			return a, badArguments("%q must be a string", name)
		}
	}
	if a.Handle == "" {
		return a, badArguments(`"handle" is missing: the preview of the result gives it`)
	}
	return a, nil
}

func badArguments(format string, args ...any) error {
	e := switchboard.Refuse(switchboard.CodeBadArguments, format, args...)
	e.Hint = `write {"handle":"res_…","range":"8000-16000"}, or "path":"/items/0", or "search":"words"`
	return e
}

func parseRange(s string) (from, to int, ok bool) {
	s = strings.NewReplacer(" ", "", ":", "-", "..", "-", "bytes=", "").Replace(s)
	first, last, _ := strings.Cut(s, "-")
	from, err := strconv.Atoi(first)
	if err != nil || from < 0 {
		return 0, 0, false
	}
	if last == "" {
		return from, 0, true
	}
	to, err = strconv.Atoi(last)
	return from, to, err == nil && to > from
}

// readPiece returns the requested part of a result, in at most that many bytes. For promised, see
// documentOf. The error is a *switchboard.Error.
func (a *ReadRequest) readPiece(result []byte, promised bool, most int) (string, error) {
	d := documentOf(result, promised)
	if d == nil || len(d.parts) == 0 {
		return "", ErrUnknownHandle
	}
	text, what := d.text(), a.Handle
	if a.hasPath {
		var err error
		if text, err = d.valueAt(a.path); err != nil {
			return "", err
		}
		what += " at " + strconv.Quote(oneLine(a.path))
	}
	room := max(most-pieceOverhead, minPiece)
	if a.hasFragment {
		return findFragment(text, a.search, what, min(room, defaultPiece)), nil
	}
	return a.textPiece(text, what, room)
}

// textPiece returns a piece of the text, with its position and the next range.
func (a *ReadRequest) textPiece(text, what string, room int) (string, error) {
	if a.from > 0 && a.from >= len(text) {
		return "", badArguments("%s has %d bytes, so there is nothing at %d", what, len(text), a.from)
	}
	from := charBoundary(text, a.from)
	to := a.to
	if to == 0 {
		to = from + min(room, defaultPiece)
	}
	end := charBoundary(text, min(to, from+room))
	if end <= from { // less than one character was requested
		end = min(len(text), from+4)
		for end < len(text) && charBoundary(text, end) != end {
			end++
		}
	}
	if from == 0 && end == len(text) {
		return fmt.Sprintf("%s, all %d bytes:\n%s", what, len(text), text), nil
	}
	next := "This is its end."
	if end < len(text) {
		next = fmt.Sprintf("Next: \"range\":\"%d-\"", end)
	}
	return fmt.Sprintf("%s, bytes %d-%d of %d. %s\n%s", what, from, end, len(text), next, text[from:end]), nil
}

// valueAt returns the value at the path: JSON in its original spelling, or the text of a string. The
// path is a JSON pointer (RFC 6901), or has a form like $.items[0].name. If the document has
// several parts, the path begins with the number of a part.
func (d *textDocument) valueAt(path string) (string, error) {
	names := splitPath(path)
	text := d.parts[0].text
	if len(d.parts) > 1 {
		if len(names) == 0 {
			return d.text(), nil
		}
		n, err := strconv.Atoi(names[0])
		if err != nil || n < 0 || n >= len(d.parts) {
			return "", badArguments("the result has %d parts; begin the path with the number of one, such as /0", len(d.parts))
		}
		text, names = d.parts[n].text, names[1:]
	}
	if len(names) == 0 {
		return text, nil
	}
	if !isJSON(text) {
		return "", badArguments("the text is not JSON, so it has no paths; use range or search")
	}
	value := []byte(strings.TrimSpace(text))
	for i, name := range names {
		next, ok := memberOf(value, name)
		if !ok {
			here, _ := json.Marshal("/" + strings.Join(names[:i], "/"))
			return "", badArguments("there is no %.64q at %s, which is %s", name, here, shorten(describeJSON(value, 1), maxShape))
		}
		value = next
	}
	if s, ok := wire.String(value); ok {
		return s, nil
	}
	return string(value), nil
}

// memberOf returns the member or element with the name.
func memberOf(value []byte, name string) (next []byte, ok bool) {
	switch value[0] {
	case '{':
		return wire.Field(value, name)
	case '[':
		n, err := strconv.Atoi(name)
		if err != nil {
			return nil, false
		}
		for element := range wire.Elements(value) {
			if n == 0 {
				return element, true
			}
			n--
		}
	}
	return nil, false
}

// splitPath splits a path into names.
func splitPath(path string) (names []string) {
	path = strings.TrimSpace(path)
	if !strings.HasPrefix(path, "/") {
		path = strings.TrimPrefix(path, "$")
		path = strings.NewReplacer("[", "/", "]", "", ".", "/", `"`, "", "'", "").Replace(path)
	}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name != "" {
			names = append(names, strings.NewReplacer("~1", "/", "~0", "~").Replace(name))
		}
	}
	return names
}

// findFragment returns the positions of the fragment in the text, ignoring case, with the text
// around each.
func findFragment(text, fragment, what string, room int) string {
	// ToLower could change the number of bytes, and with it the positions.
	low, want := lowerASCII(text), lowerASCII(fragment)
	var b strings.Builder
	n, from, shown := 0, 0, 0
	for {
		at := strings.Index(low[from:], want)
		if at < 0 {
			break
		}
		at += from
		from = at + len(want)
		if n++; shown == maxMatches || b.Len() > room-2*matchContext-len(want)-40 {
			continue
		}
		shown++
		begin, end := charBoundary(text, at-matchContext), charBoundary(text, from+matchContext)
		fmt.Fprintf(&b, "at %d: %s\n", at, strings.Join(strings.Fields(text[begin:end]), " "))
	}
	if n == 0 {
		return fmt.Sprintf("%s: %q does not occur in its %d bytes. Search for a part of it, or read a range.", what, oneLine(fragment), len(text))
	}
	return fmt.Sprintf("%s: %q occurs in it %s, %d shown; the numbers are bytes for range.\n%s", what, oneLine(fragment), plural(n, "time"), shown, b.String())
}

// lowerASCII returns s with the letters A to Z in lower case.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
