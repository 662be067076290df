package edit_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// seeds returns the texts of the archives, each as it is, with CRLF, with a byte order mark, and without a last line end.
func seeds(t interface{ Fatal(args ...any) }) (out [][]byte) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range ar.Files {
			if !strings.Contains(f.Name, "refused") && !strings.Contains(f.Name, "again") {
				out = append(out, f.Data, bytes.ReplaceAll(f.Data, []byte("\n"), []byte("\r\n")),
					append([]byte("\ufeff"), f.Data...), bytes.TrimSuffix(f.Data, []byte("\n")))
			}
		}
	}
	return out
}

// holdsServers reports whether the text has the key servers with a map. After an edit, a text keeps that key.
func holdsServers(text []byte) bool {
	got, err := edit.ListServers("x.yaml", text)
	return err == nil && (len(got) > 0 || bytes.Contains(text, []byte("servers: {}")) || bytes.Contains(text, []byte(`"servers": {}`)))
}

// A row that is added and removed again, in any order, leaves the same bytes.
func TestAddedAndRemovedRowsLeaveTheSameBytes(t *testing.T) {
	texts := slices.DeleteFunc(seeds(t), func(b []byte) bool { return !holdsServers(b) })
	value := rapid.StringOfN(rapid.RuneFrom([]rune("ab/:#'\"\\{}[],-&*! \t\nä☃\U0001F600%$")), 0, 12, -1)
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SampledFrom(texts).Draw(t, "text")
		was, err := edit.ListServers("x.yaml", before)
		if err != nil {
			t.Skip(err)
		}
		var add []edit.Server
		for i := range rapid.IntRange(1, 3).Draw(t, "rows") {
			add = append(add, edit.Server{ID: switchboard.ServerID(fmt.Sprint("new-", i)), Settings: []edit.Setting{
				edit.Text("a", value.Draw(t, "text")), edit.List("b", rapid.SliceOfN(value, 0, 3).Draw(t, "list")...), edit.Map("c", edit.Text("d", value.Draw(t, "map"))),
			}})
		}
		now := before
		if rapid.Bool().Draw(t, "at once") {
			now, err = edit.AddServers("x.yaml", now, add)
		} else {
			for _, r := range add {
				if err == nil {
					now, err = edit.AddServers("x.yaml", now, []edit.Server{r})
				}
			}
		}
		if err != nil {
			t.Fatalf("add: %v\n%q", err, now)
		}
		got, err := edit.ListServers("x.yaml", now)
		if err != nil || len(got) != len(was)+len(add) {
			t.Fatalf("%d servers after adding %d to %d, %v", len(got), len(add), len(was), err)
		}
		for _, i := range rapid.Permutation([]int{0, 1, 2}[:len(add)]).Draw(t, "order") {
			if now, err = edit.RemoveServers("x.yaml", now, add[i].ID); err != nil {
				t.Fatalf("remove: %v\n%q", err, now)
			}
		}
		if !bytes.Equal(now, before) {
			t.Fatalf("got  %q\nwant %q", now, before)
		}
	})
}

// For any text, an edit gives a text with the announced servers, or an error. Removing takes bytes away and adds at most
// the braces of an empty map.
func FuzzEdit(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		was, err := edit.ListServers("x.yaml", text)
		if err != nil {
			return
		}
		if now, err := edit.AddServers("x.yaml", text, []edit.Server{web, files}); err == nil {
			got, err := edit.ListServers("x.yaml", now)
			if err != nil || len(got) != len(was)+2 {
				t.Fatalf("%d servers became %d, %v:\n%q", len(was), len(got), err, now)
			}
			back, err := edit.RemoveServers("x.yaml", now, "web", "files")
			if err != nil {
				t.Fatalf("the added rows cannot be removed: %v\n%q", err, now)
			}
			if len(was) > 0 && !bytes.Equal(back, text) {
				t.Fatalf("added and removed:\n got %q\nwant %q", back, text)
			}
		}
		for _, s := range was {
			now, err := edit.RemoveServers("x.yaml", text, s.ID)
			if err != nil {
				continue
			}
			taken, rest := now, text
			if len(was) == 1 {
				taken = bytes.Replace(now, []byte(" {}"), nil, 1)
			}
			for _, c := range taken {
				i := bytes.IndexByte(rest, c)
				if i < 0 {
					t.Fatalf("removing %q from %q made %q", s.ID, text, now)
				}
				rest = rest[i+1:]
			}
		}
	})
}
