package edit_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/configtest"
)

// web and files are the rows that the tests add.
var (
	web = edit.Server{ID: "web", Comment: `"My Web"`, Settings: []edit.Setting{
		edit.Text("transport", "http"), edit.Text("url", "https://example.com/mcp"),
		edit.Map("headers", edit.Text("Authorization", "${file:secrets/web}"), edit.Text("X-On", "on")),
	}}
	files = edit.Server{ID: "files", Settings: []edit.Setting{
		edit.Text("transport", "stdio"), edit.List("command", "npx", "-y", "some, [server] # 1", ""),
	}}
	rows = map[string]edit.Server{"web": web, "files": files}
)

// Each archive holds texts, and edits of them one after the other. "before" is a text; each further file is named by an
// number and an edit, "2 add web files" or "3 remove brave", and holds its result. "refused" precedes an edit that fails.
// The lines of an archive end in LF; the comment may say "crlf", "bom" or "no line end", and then the texts are so.
func TestEditsChangeOnlyTheAnnouncedRows(t *testing.T) {
	configtest.Archives(t, "testdata/*.txtar", func(t *testing.T, ar *txtar.Archive) {
		how := string(ar.Comment)
		spell := func(b []byte) []byte {
			if strings.Contains(how, "no line end") {
				b = bytes.TrimSuffix(b, []byte("\n"))
			}
			if strings.Contains(how, "crlf") {
				b = bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))
			}
			if strings.Contains(how, "bom") {
				b = append([]byte("\ufeff"), b...)
			}
			return b
		}
		unspell := func(b []byte) string {
			s := string(b)
			if strings.Contains(how, "bom") {
				if !strings.HasPrefix(s, "\ufeff") {
					t.Errorf("the byte order mark is gone: %q", s)
				}
				s = strings.TrimPrefix(s, "\ufeff")
			}
			if strings.Contains(how, "crlf") {
				if strings.Count(s, "\n") != strings.Count(s, "\r\n") {
					t.Errorf("a line ends in LF: %q", s)
				}
				s = strings.ReplaceAll(s, "\r\n", "\n")
			}
			if strings.Contains(how, "no line end") {
				if strings.HasSuffix(s, "\n") {
					t.Errorf("the text ends in a line end: %q", s)
				}
				s += "\n"
			}
			return s
		}
		var now, before []byte
		for _, f := range slices.Clone(ar.Files) {
			words := strings.Fields(f.Name)[1:]
			refused := words[0] == "refused"
			if refused {
				words = words[1:]
			}
			var err error
			next := now
			switch words[0] {
			case "before":
				now, before = spell(f.Data), spell(f.Data)
				continue
			case "add":
				var add []edit.Server
				for _, w := range words[1:] {
					add = append(add, rows[w])
				}
				next, err = edit.AddServers("switchboard.yaml", now, add)
			case "remove":
				var ids []switchboard.ServerID
				for _, w := range words[1:] {
					ids = append(ids, switchboard.ServerID(w))
				}
				next, err = edit.RemoveServers("switchboard.yaml", now, ids...)
			case "again": // the edits so far have undone each other
				if !bytes.Equal(now, before) {
					t.Errorf("the text is not the one before:\n%s", now)
				}
				continue
			default:
				t.Fatalf("unknown edit %q", f.Name)
			}
			if refused {
				if err == nil {
					t.Errorf("%s is not refused:\n%s", f.Name, next)
					continue
				}
				if _, ok := errors.AsType[switchboard.Faults](err); !ok {
					t.Errorf("%s: error %T, want Faults", f.Name, err)
				}
				configtest.Golden(t, ar, f.Name, err.Error()+"\n")
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", f.Name, err)
				continue
			}
			now = next
			configtest.Golden(t, ar, f.Name, unspell(now))
		}
	})
}

func TestServersAreListedInTheOrderOfTheText(t *testing.T) {
	got, err := edit.ListServers("x.yaml", []byte("listen: 127.0.0.1:1\nservers:\n  b: {}\n  # c\n  a:\n"))
	if want := "[{b 3 3} {a 5 3}]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("ListServers = %v, %v; want %s", got, err, want)
	}
	if got, err := edit.ListServers("x.yaml", nil); err != nil || len(got) != 0 {
		t.Errorf("ListServers of an empty text = %v, %v", got, err)
	}
}
