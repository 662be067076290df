package page_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"regexp"
	"strings"
	"testing"
)

var assetAddress = regexp.MustCompile(`"(/assets/[^"]+)"`)

// The bounds are those of design part 15: 120 KiB for the first view, and 20 KiB for each further one.
func TestAViewIsSmallAndItsScriptsAreKept(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	d.api = answer(200, "application/json", overviewOf(t, strings.Repeat("some words of a server ", 8)))
	get := func(path string, header ...string) (body []byte, kept string) {
		t.Helper()
		w := d.ask("GET", path, host, "", append(header, "Accept-Encoding", "br, gzip")...)
		if w.Code != 200 || w.Header().Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: %d %v", path, w.Code, w.Header())
		}
		return w.Body.Bytes(), w.Header().Get("Cache-Control")
	}
	body, kept := get("/now", cookie...)
	if kept != "no-store" || len(body) > 20<<10 {
		t.Errorf("Now has %d bytes, and is kept: %s", len(body), kept)
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || !strings.Contains(string(text), "</html>") {
		t.Fatalf("%v %s", err, text)
	}
	found := assetAddress.FindAllStringSubmatch(string(text), -1)
	sum := len(body)
	for _, address := range found {
		file, kept := get(address[1])
		if sum += len(file); !strings.Contains(kept, "immutable") {
			t.Errorf("%s is kept: %s", address[1], kept)
		}
	}
	if t.Logf("the first view has %d bytes, and the next %d", sum, len(body)); sum > 120<<10 || len(found) != 6 {
		t.Errorf("the first view of %d files has %d bytes", len(found), sum)
	}
	for _, path := range []string{"/assets/0000000000000000/page.js", "/assets/page.js", "/assets/", "/assets/../now.html"} {
		if w := d.ask("GET", path, host, ""); w.Code != 404 {
			t.Errorf("%s is answered with %d", path, w.Code)
		}
	}
	if w := d.ask("GET", "/now", host, "", append(cookie, "Accept-Encoding", "gzip;q=0")...); w.Header().Get("Content-Encoding") != "" {
		t.Error("a browser gets what it does not take")
	}
}
