package preview

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// ReadTool is the tool of our own that reads on in a result.
const ReadTool = "switchboard_read"

// Tool is ReadTool as lists show it.
var Tool = &switchboard.Tool{ID: switchboard.ToolID{Name: ReadTool}, Definition: []byte(`{"name":"` + ReadTool + `","description":"Reads on in a result that was too long. The preview of such a result gives its handle.",` +
	`"inputSchema":{"type":"object","properties":{"handle":{"type":"string"},` +
	`"range":{"type":"string","description":"bytes, such as 8000-16000"},` +
	`"path":{"type":"string","description":"a JSON value, such as /items/0"},` +
	`"search":{"type":"string","description":"text to find"}},"required":["handle"]},` +
	`"annotations":{"readOnlyHint":true},"_meta":{"anthropic/alwaysLoad":true}}`)}

// Bounds of a piece.
const (
	usualPiece = 8000 // bytes, where nobody says how many
	leastPiece = 1000
	frame      = 300 // bytes of what is said besides
	maxMatches = 20
	around     = 80 // bytes before and behind a match
)

// An Ask is what a model wants to read.
type Ask struct {
	Handle string

	path        string
	hasPath     bool
	from, to    int // to is 0 where it is not given
	search      string
	hasFragment bool // search is given
}

// ParseAsk reads the arguments of ReadTool, an object that was scanned. It takes what has one
// meaning. The error is a *switchboard.Error, and shows what to write.
func ParseAsk(args []byte) (a Ask, err error) {
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
				return a, bad(`"range" is of bytes, such as "8000-16000" or "8000-"`)
			}
		default:
			return a, bad("%.64q is unknown; the arguments are handle, range, path and search", name)
		}
		if !ok {
			return a, bad("%q must be a string", name)
		}
	}
	if a.Handle == "" {
		return a, bad(`"handle" is missing: the preview of the result gives it`)
	}
	return a, nil
}

func bad(format string, args ...any) error {
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

// piece returns what is asked for of a result, in at most that many bytes. promised is that of
// documentOf. The error is a *switchboard.Error.
func (a *Ask) piece(result []byte, promised bool, most int) (string, error) {
	d := documentOf(result, promised)
	if d == nil || len(d.parts) == 0 {
		return "", ErrUnknown
	}
	text, what := d.text(), a.Handle
	if a.hasPath {
		var err error
		if text, err = d.at(a.path); err != nil {
			return "", err
		}
		what += " at " + strconv.Quote(line(a.path))
	}
	room := max(most-frame, leastPiece)
	if a.hasFragment {
		return find(text, a.search, what, min(room, usualPiece)), nil
	}
	return a.cut(text, what, room)
}

// cut is a piece of the text, with where it stands and what comes next.
func (a *Ask) cut(text, what string, room int) (string, error) {
	if a.from > 0 && a.from >= len(text) {
		return "", bad("%s has %d bytes, so that nothing stands at %d", what, len(text), a.from)
	}
	from := boundary(text, a.from)
	to := a.to
	if to == 0 {
		to = from + min(room, usualPiece)
	}
	end := boundary(text, min(to, from+room))
	if end <= from { // less than one character was asked for
		end = min(len(text), from+4)
		for end < len(text) && boundary(text, end) != end {
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

// at returns the value in the document to which the path leads: JSON as spelt, and the text
// of a string. The path is a JSON pointer (RFC 6901), or the like of $.items[0].name. If the document
// has several parts, the path begins with the number of one.
func (d *document) at(path string) (string, error) {
	names := pointer(path)
	text := d.parts[0].text
	if len(d.parts) > 1 {
		if len(names) == 0 {
			return d.text(), nil
		}
		n, err := strconv.Atoi(names[0])
		if err != nil || n < 0 || n >= len(d.parts) {
			return "", bad("the result has %d parts; begin the path with the number of one, such as /0", len(d.parts))
		}
		text, names = d.parts[n].text, names[1:]
	}
	if len(names) == 0 {
		return text, nil
	}
	if !isJSON(text) {
		return "", bad("the text is no JSON, so that no path leads into it; use range or search")
	}
	value := []byte(strings.TrimSpace(text))
	for i, name := range names {
		next, ok := step(value, name)
		if !ok {
			here, _ := json.Marshal("/" + strings.Join(names[:i], "/"))
			return "", bad("there is no %.64q at %s, which is %s", name, here, shorten(shape(value, 1), maxShape))
		}
		value = next
	}
	if s, ok := wire.String(value); ok {
		return s, nil
	}
	return string(value), nil
}

// step returns the member or the element of that name.
func step(value []byte, name string) (next []byte, ok bool) {
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

// pointer is the names of which a path is made.
func pointer(path string) (names []string) {
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

// find says where the fragment stands in the text, in any case of letters, and what stands
// around it.
func find(text, fragment, what string, room int) string {
	// ToLower could change the number of bytes, and with it where things stand.
	low, want := lower(text), lower(fragment)
	var b strings.Builder
	n, from, shown := 0, 0, 0
	for {
		at := strings.Index(low[from:], want)
		if at < 0 {
			break
		}
		at += from
		from = at + len(want)
		if n++; shown == maxMatches || b.Len() > room-2*around-len(want)-40 {
			continue
		}
		shown++
		begin, end := boundary(text, at-around), boundary(text, from+around)
		fmt.Fprintf(&b, "at %d: %s\n", at, strings.Join(strings.Fields(text[begin:end]), " "))
	}
	if n == 0 {
		return fmt.Sprintf("%s: %q does not stand in its %d bytes. Search for a part of it, or read a range.", what, line(fragment), len(text))
	}
	return fmt.Sprintf("%s: %q stands in it %s, %d shown; the numbers are bytes for range.\n%s", what, line(fragment), plural(n, "time"), shown, b.String())
}

// lower is s with the letters A to Z in lower case.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
