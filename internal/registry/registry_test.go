package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/dns"
)

// serve starts a registry whose pages answer makes.
func serve(t *testing.T, answer func(w http.ResponseWriter, cursor string)) switchboard.ServerRegistry {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		q := req.URL.Query()
		if req.Method != http.MethodGet || req.URL.Path != "/base/v0.1/servers" || q.Get("limit") != "100" || q.Get("version") != "latest" {
			t.Errorf("%s %s", req.Method, req.URL)
		}
		answer(w, q.Get("cursor"))
	}))
	t.Cleanup(s.Close)
	return switchboard.ServerRegistry{ID: "corp", URL: s.URL + "/base"}
}

// server returns a server.json with the name, changed by pairs of a member and its JSON.
func server(name string, change ...string) string {
	m := map[string]json.RawMessage{"name": json.RawMessage(quote(name)), "version": json.RawMessage(`"1.0.0"`), "description": json.RawMessage(`"Does it."`)}
	for i := 0; i < len(change); i += 2 {
		m[change[i]] = json.RawMessage(change[i+1])
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// npmPackage returns a list with an npm package, changed by pairs.
func npmPackage(change ...string) string {
	m := map[string]json.RawMessage{"registryType": json.RawMessage(`"npm"`), "identifier": json.RawMessage(`"@alice/thing"`), "version": json.RawMessage(`"1.0.0"`), "transport": json.RawMessage(`{"type":"stdio"}`)}
	for i := 0; i < len(change); i += 2 {
		m[change[i]] = json.RawMessage(change[i+1])
	}
	text, err := json.Marshal([]any{m})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func quote(s string) string {
	text, _ := json.Marshal(s) // it never fails
	return string(text)
}

// page returns a page of server.json.
func page(cursor string, servers ...string) string {
	items := make([]string, len(servers))
	for i, s := range servers {
		items[i] = `{"server":` + s + `,"_meta":{"io.modelcontextprotocol.registry/official":{"status":"active","isLatest":true}}}`
	}
	return fmt.Sprintf(`{"servers":[%s],"metadata":{"nextCursor":%s,"count":%d}}`, strings.Join(items, ","), quote(cursor), len(items))
}

func names(l *Listing) (all []string) {
	for _, e := range l.Entries {
		all = append(all, e.Name)
	}
	return all
}

func TestARegistryIsReadPageByPage(t *testing.T) {
	row := serve(t, func(w http.ResponseWriter, cursor string) {
		switch cursor {
		case "":
			fmt.Fprint(w, page("a b&c", server("io.github.alice/one"), server("io.github.alice/two")))
		case "a b&c":
			fmt.Fprint(w, page("", server("io.github.alice/three")))
		default:
			t.Errorf("cursor %q", cursor)
		}
	})
	l, err := Read(t.Context(), row, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(l); !slices.Equal(got, []string{"io.github.alice/one", "io.github.alice/two", "io.github.alice/three"}) || l.Cut != "" || l.RefusedCount != 0 || l.Registry != "corp" || l.Entries[2].Registry != "corp" {
		t.Errorf("%q %+v", got, l)
	}
}

func TestAFileHoldsAListAnArrayOrOneServer(t *testing.T) {
	dir := t.TempDir()
	one, two := server("io.github.alice/one"), server("io.github.alice/two")
	for text, want := range map[string]struct {
		names []string
		cut   bool
	}{
		page("", one, two):                 {names: []string{"io.github.alice/one", "io.github.alice/two"}},
		page("more", one):                  {names: []string{"io.github.alice/one"}, cut: true},
		"[" + one + "," + two + "]":        {names: []string{"io.github.alice/one", "io.github.alice/two"}},
		"\ufeff" + one:                     {names: []string{"io.github.alice/one"}},
		`{"server":` + one + `}`:           {names: []string{"io.github.alice/one"}},
		`{"servers":[` + one + `]}`:        {names: []string{"io.github.alice/one"}},
		`{"servers":null,"metadata":null}`: {},
		`[]`:                               {},
		`{"servers":[` + one + `,{"server":` + two + "}]}": {names: []string{"io.github.alice/one", "io.github.alice/two"}},
	} {
		if err := os.WriteFile(filepath.Join(dir, "registry.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"registry.json", filepath.Join(dir, "registry.json")} {
			l, err := Read(t.Context(), switchboard.ServerRegistry{ID: "corp", File: file}, Options{Folder: dir})
			if err != nil {
				t.Errorf("%s: %v", text, err)
			} else if got := names(l); !slices.Equal(got, want.names) || (l.Cut != "") != want.cut || l.RefusedCount != 0 {
				t.Errorf("%s: %q %+v", text, got, l)
			}
		}
	}
}

func TestARegistryThatCannotBeReadIsAnErrorThatNamesIt(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) switchboard.ServerRegistry {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return switchboard.ServerRegistry{ID: "corp", File: name}
	}
	says := func(status int, text string) switchboard.ServerRegistry {
		return serve(t, func(w http.ResponseWriter, _ string) {
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		})
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for want, row := range map[string]switchboard.ServerRegistry{
		"neither a file nor a url":       {ID: "corp"},
		"none.json cannot be read":       {ID: "corp", File: "none.json"},
		"folder cannot be read":          {ID: "corp", File: "folder"},
		"not JSON in the form":           write("a", "<html>"),
		"not valid JSON, at byte":        write("b", `{"servers":[{]}`),
		"not valid JSON":                 write("c", `{"servers":[{}`),
		"something follows":              write("d", `[]{}`),
		"servers stands in it twice":     write("e", `{"servers":[],"servers":[]}`),
		"metadata.nextCursor is no text": write("f", `{"servers":[],"metadata":{"nextCursor":1}}`),
		"metadata has a name twice":      write("g", `{"servers":[],"metadata":{"nextCursor":"a","nextCursor":"b"}}`),
		"metadata.nextCursor is longer":  write("h", `{"servers":[],"metadata":{"nextCursor":"`+strings.Repeat("a", 1025)+`"}}`),
		"at byte 10000":                  write("i", strings.Repeat("[", 20_000)),
		"page 1: it answers 503":         says(503, page("")),
		"page 1: this is not JSON in":    says(200, server("io.github.alice/one")), // one server.json is no list
		"page 1: this is not JSON in th": says(200, "[]"),
	} {
		if _, err := Read(t.Context(), row, Options{Folder: dir}); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "registry corp: ") {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// An endless list ends at the bound on pages, and the listing says so. Its cursors are always new.
func TestARegistryOfTenThousandPagesIsCut(t *testing.T) {
	var asked atomic.Int64
	row := serve(t, func(w http.ResponseWriter, _ string) {
		n := asked.Add(1)
		fmt.Fprint(w, page(fmt.Sprint("at-", n), server(fmt.Sprint("io.github.alice/n", n))))
	})
	l, err := Read(t.Context(), row, Options{})
	if err != nil || len(l.Entries) != MaxPages || asked.Load() != MaxPages || !strings.Contains(l.Cut, "100 pages") {
		t.Fatalf("%v %d requests, %+v", err, asked.Load(), l.Cut)
	}
}

func TestACursorThatComesTwiceIsRefused(t *testing.T) {
	var asked atomic.Int64
	row := serve(t, func(w http.ResponseWriter, cursor string) {
		asked.Add(1)
		fmt.Fprint(w, page(map[string]string{"": "a", "a": "b", "b": "a"}[cursor]))
	})
	if _, err := Read(t.Context(), row, Options{}); err == nil || !strings.Contains(err.Error(), "page 3: it names the cursor of an earlier page again") || asked.Load() != 3 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}

func TestARegistryOf200MiBIsNotReadToItsEnd(t *testing.T) {
	var sent atomic.Int64
	flood := func(w http.ResponseWriter, _ string) {
		chunk := []byte(strings.Repeat(" ", 1<<20))
		fmt.Fprint(w, `{"servers":[`)
		for range 200 {
			n, err := w.Write(chunk)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}
	if _, err := Read(t.Context(), serve(t, flood), Options{}); err == nil || !strings.Contains(err.Error(), "it sends too much: at most 16777216 bytes") {
		t.Error(err)
	}
	if sent.Load() > 64<<20 {
		t.Errorf("%d bytes were taken", sent.Load())
	}
	later := serve(t, func(w http.ResponseWriter, cursor string) {
		if cursor == "" {
			fmt.Fprint(w, page("next", server("io.github.alice/one")))
			return
		}
		flood(w, cursor)
	})
	if l, err := Read(t.Context(), later, Options{}); err != nil || len(l.Entries) != 1 || !strings.Contains(l.Cut, "16777216 bytes, at page 2") {
		t.Errorf("%+v %v", l, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, MaxBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), switchboard.ServerRegistry{ID: "corp", File: "big"}, Options{Folder: dir}); err == nil || !strings.Contains(err.Error(), "larger than 16777216 bytes") {
		t.Error(err)
	}
}

// Refused entries count too: each costs time.
func TestMoreEntriesThanTheBoundAreCut(t *testing.T) {
	row := serve(t, func(w http.ResponseWriter, cursor string) {
		if cursor != "" {
			t.Error("a page behind the bound was asked for")
		}
		fmt.Fprint(w, `{"servers":[`+strings.Repeat("{},", 1_000_000)+`{}],"metadata":{"nextCursor":"more"}}`)
	})
	l, err := Read(t.Context(), row, Options{})
	if err != nil || l.RefusedCount != MaxEntries || len(l.Refused) != maxRefused || !strings.Contains(l.Cut, "10000 entries, at page 1") {
		t.Fatalf("%v: %d refused, cut %q", err, l.RefusedCount, l.Cut)
	}
	if l.Refused[99].Where != "page 1, entry 100" {
		t.Errorf("%+v", l.Refused[99])
	}
}

func TestASlowRegistryIsStopped(t *testing.T) {
	wait := make(chan struct{})
	defer close(wait) // before the servers are closed, which wait for it
	slow := func(from string) switchboard.ServerRegistry {
		return serve(t, func(w http.ResponseWriter, cursor string) {
			fmt.Fprint(w, page("next", server("io.github.alice/one"))[:40])
			if cursor == from {
				w.(http.Flusher).Flush()
				<-wait
			}
			fmt.Fprint(w, page("next", server("io.github.alice/one"))[40:])
		})
	}
	b := standard
	b.requestTime = 50 * time.Millisecond
	if _, err := read(t.Context(), slow(""), Options{}, b); err == nil || !strings.Contains(err.Error(), "page 1: no whole answer within 50ms") {
		t.Error(err)
	}
	b = standard
	b.time = 500 * time.Millisecond
	if l, err := read(t.Context(), slow("next"), Options{}, b); err != nil || len(l.Entries) != 1 || !strings.Contains(l.Cut, "stopped after 500ms, at page 2") {
		t.Errorf("%+v %v", l, err)
	}
	if _, err := read(t.Context(), slow(""), Options{}, b); err == nil {
		t.Error("a registry without any page in time is no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, slow(""), Options{}); err == nil {
		t.Error("a reading that its caller has ended is no error")
	}
}

// SS-04: the server behind the redirect gets no request, at any page.
func TestSS04ARegistryThatRedirectsIsNotFollowed(t *testing.T) {
	var reached atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		fmt.Fprint(w, page(""))
	}))
	t.Cleanup(inside.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, at := range []string{"", "next"} {
			row := serve(t, func(w http.ResponseWriter, cursor string) {
				if cursor == at {
					w.Header().Set("Location", inside.URL+"/metadata\u202e")
					w.WriteHeader(status)
				}
				fmt.Fprint(w, page("next"))
			})
			_, err := Read(t.Context(), row, Options{})
			if err == nil || !strings.Contains(err.Error(), "it redirects to \""+inside.URL+`/metadata\u{202e}", and redirects are not followed`) {
				t.Errorf("%d at %q: %v", status, at, err)
			}
		}
	}
	if reached.Load() > 0 {
		t.Errorf("it got %d requests", reached.Load())
	}
}

// SS-05: the owner of a public name cannot lead the reading to a server on this machine.
func TestSS05ARegistryIsDialledWithTheCheckOfAddresses(t *testing.T) {
	resolver, err := dns.Listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	was := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = was })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, resolver.Addr)
	}}
	var reached atomic.Int64
	row := serve(t, func(w http.ResponseWriter, _ string) {
		reached.Add(1)
		fmt.Fprint(w, page(""))
	})
	resolver.Set("registry.example.com", "127.0.0.1")
	resolver.Set("registry.test", "127.0.0.1")
	named := row
	named.URL = strings.Replace(row.URL, "127.0.0.1", "registry.example.com", 1)
	if _, err := Read(t.Context(), named, Options{}); err == nil || !strings.Contains(err.Error(), "leads to the loopback address") || reached.Load() > 0 {
		t.Errorf("%v, %d requests", err, reached.Load())
	}
	named.URL = strings.Replace(row.URL, "127.0.0.1", "registry.test", 1)
	if _, err := Read(t.Context(), named, Options{}); err != nil || reached.Load() != 1 {
		t.Errorf("%v, %d requests", err, reached.Load())
	}
}

func TestACompressedAnswerIsRefused(t *testing.T) {
	row := serve(t, func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Encoding", "gzip")
		fmt.Fprint(w, page(""))
	})
	if _, err := Read(t.Context(), row, Options{}); err == nil || !strings.Contains(err.Error(), "compresses its answer") {
		t.Error(err)
	}
}
