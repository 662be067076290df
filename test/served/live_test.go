package served_test

import (
	"bufio"
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A liveStream is the stream of an open page. Its words are those that the page was told.
type liveStream struct {
	words chan string
	close func()
}

// follow opens the stream of Now, as the page in the browser does. stream is nil if it is refused.
func (b *adminBrowser) follow(query string, header ...string) (status int, stream *liveStream) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/live?view=/now"+query, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		cancel()
		return resp.StatusCode, nil
	}
	stream = &liveStream{make(chan string, 100), cancel}
	go func() {
		defer close(stream.words)
		defer func() { _ = resp.Body.Close() }()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if word, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				stream.words <- word
			}
		}
	}()
	b.t.Cleanup(cancel)
	return resp.StatusCode, stream
}

// awaitWord waits until the page is told the word. "" is the end of the stream.
func (s *liveStream) awaitWord(t *testing.T, want string) {
	t.Helper()
	for {
		word := wait.Receive(t, "the page is told "+want, s.words)
		if slices.Contains(strings.Fields(word), want) || word == want {
			return
		}
		if word == "" {
			t.Fatalf("the stream has ended, and the page was not told %q", want)
		}
	}
}

// PG-07: 200 open pages take little memory, and each is told of a change. A stream is bound to its session and to the page's own origin, and a session has a
// bounded number of them.
func TestPG07TwoHundredOpenPagesCostLittle(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	memory := func() float64 {
		_, values := g.Metrics()
		return values["process_resident_memory_bytes"]
	}
	const pages, ofOne = 200, 32
	ann := openAdmin(t, g, keys["admin"])
	var all []*liveStream
	before := memory()
	for i := 0; len(all) < pages; i++ {
		b := openAdmin(t, g, keys["operator"])
		for range min(ofOne, pages-len(all)) {
			status, s := b.follow("")
			if s == nil {
				t.Fatalf("page %d is refused with %d", len(all), status)
			}
			all = append(all, s)
		}
		if i == 0 {
			if status, _ := b.follow(""); status != http.StatusTooManyRequests {
				t.Errorf("page %d of a session gets %d", ofOne+1, status)
			}
		}
	}
	each := (memory() - before) / pages
	t.Logf("a page takes %.0f bytes", each)
	if each > 256<<10 || before == 0 {
		t.Errorf("a page takes %.0f bytes", each)
	}
	_, own := ann.follow("&tenant=acme")
	_, other := openAdmin(t, g, keys["other admin"]).follow("&tenant=umbrella")
	if own == nil || other == nil {
		t.Fatal("an officer of a tenant has no stream")
	}
	g.Do(0, "", "server", "disable", "a", "--reason", "a test")
	for _, s := range append(all, own) {
		s.awaitWord(t, "server")
	}

	for what, tt := range map[string]struct {
		b      *adminBrowser
		query  string
		header []string
		want   int
	}{
		"nobody":                         {openAdmin(t, g, ""), "", nil, http.StatusUnauthorized},
		"a page of another site":         {ann, "&tenant=acme", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, http.StatusForbidden},
		"a page of this machine":         {ann, "&tenant=acme", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, http.StatusForbidden},
		"a link of another site":         {ann, "&tenant=acme", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, http.StatusNotFound},
		"another tenant's admin":         {ann, "&tenant=umbrella", nil, http.StatusNotFound},
		"the admin of a tenant, for all": {ann, "", nil, http.StatusOK}, // the API takes the only one
	} {
		if status, _ := tt.b.follow(tt.query, tt.header...); status != tt.want {
			t.Errorf("%s gets %d, want %d", what, status, tt.want)
		}
	}

	// The stream of a session ends with it.
	_, page := ann.get(ann.base + "/now?tenant=acme")
	token := formToken.FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("the page has no form: %s", page)
	}
	ann.post("/sign-out", map[string][]string{"token": {token[1]}})
	own.awaitWord(t, "")
}
