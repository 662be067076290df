package post

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/httphead"
)

const (
	plainHead = "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
	usualHead = "POST /mcp/tasks/t-1 HTTP/1.1\r\nHost: 127.0.0.1:7420\r\nAuthorization: Bearer k\r\nContent-Type: application/json\r\n" +
		"Accept: application/json, text/event-stream\r\nContent-Length: 23\r\nConnection: keep-alive\r\n\r\n"
)

func (f requestForm) String() string { return [...]string{"incomplete", "plain", "other"}[f] }

// headWith returns plainHead with another line behind its first header.
func headWith(line string) string {
	return strings.Replace(plainHead, "Content-Length", line+"\r\nContent-Length", 1)
}

// headWithLength returns plainHead with another line in place of its Content-Length.
func headWithLength(line string) string {
	return strings.Replace(plainHead, "Content-Length: 5", line, 1)
}

// headWithRequestLine returns plainHead with another request line.
func headWithRequestLine(line string) string {
	return strings.Replace(plainHead, "POST /mcp HTTP/1.1", line, 1)
}

func TestOnlyARequestThatNobodyCanUnderstandInTwoWaysIsPlain(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		is   requestForm
		body int // of a plain request
	}{
		"the smallest":                        {plainHead, plain, 5},
		"a usual one":                         {usualHead, plain, 23},
		"with its body":                       {plainHead + "hello", plain, 5},
		"with a body that looks like a head":  {plainHead + "\r\n\r\nx", plain, 5},
		"another request behind it":           {plainHead + "hello" + plainHead, plain, 5},
		"a path below":                        {headWithRequestLine("POST /mcp/runs/a_b-c.d~e HTTP/1.1"), plain, 5},
		"a path that goes up":                 {headWithRequestLine("POST /mcp/../x HTTP/1.1"), plain, 5},
		"an empty body":                       {headWithLength("Content-Length: 0"), plain, 0},
		"a length with zeros":                 {headWithLength("Content-Length: 0000007"), plain, 7},
		"the longest length":                  {headWithLength("Content-Length: 9999999"), plain, 9999999},
		"space around the length":             {headWithLength("content-LENGTH: \t5\t "), plain, 5},
		"no space before the length":          {headWithLength("Content-Length:5"), plain, 5},
		"the length first":                    {"POST /mcp HTTP/1.1\r\nContent-Length: 5\r\nHost: a\r\n\r\n", plain, 5},
		"a header twice":                      {headWith("Accept: a\r\naccept: b"), plain, 5},
		"an empty header":                     {headWith("Origin:"), plain, 5},
		"a header with a colon and a tab":     {headWith("A: b:\tc"), plain, 5},
		"a name with an underscore":           {headWith("A_b: c"), plain, 5},
		"a connection that stays open":        {headWith("Connection: Keep-Alive"), plain, 5},
		"a name that only begins as a length": {headWith("Content-Lengths: 6"), plain, 5},
		"as many headers as there may be":     {headWith(strings.Repeat("A: b\r\n", maxHeaders-3) + "A: b"), plain, 5},

		"nothing":                          {"", incomplete, 0},
		"one byte":                         {"P", incomplete, 0},
		"a part of the path":               {"POST /mc", incomplete, 0},
		"a request line":                   {"POST /mcp HTTP/1.1\r\n", incomplete, 0},
		"a part of a header":               {"POST /mcp HTTP/1.1\r\nHo", incomplete, 0},
		"a head without its last byte":     {plainHead[:len(plainHead)-1], incomplete, 0},
		"a head whose lines end in LF":     {strings.ReplaceAll(plainHead, "\r\n", "\n"), incomplete, 0}, // it is other once there is a CRLF CRLF
		"such a head, and a plain request": {strings.ReplaceAll(plainHead, "\r\n", "\n") + plainHead, other, 0},

		"another method":                     {"GET /mcp HTTP/1.1\r\n", other, 0},
		"a method in small letters":          {"post /mcp HTTP/1.1\r\n", other, 0},
		"another path":                       {"POST /v1/tasks/t/runs HTTP/1.1\r\n", other, 0},
		"HTTP/2":                             {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", other, 0},
		"an empty line before":               {"\r\n" + plainHead, other, 0},
		"a space before":                     {" " + plainHead, other, 0},
		"what replaces a refused head":       {httphead.Refused, other, 0},
		"two spaces before the path":         {headWithRequestLine("POST  /mcp HTTP/1.1"), other, 0},
		"two spaces behind the path":         {headWithRequestLine("POST /mcp  HTTP/1.1"), other, 0},
		"a tab behind the path":              {headWithRequestLine("POST /mcp\tHTTP/1.1"), other, 0},
		"HTTP/1.0":                           {headWithRequestLine("POST /mcp HTTP/1.0"), other, 0},
		"HTTP/1.10":                          {headWithRequestLine("POST /mcp HTTP/1.10"), other, 0},
		"no version":                         {headWithRequestLine("POST /mcp"), other, 0},
		"a query":                            {headWithRequestLine("POST /mcp?a=b HTTP/1.1"), other, 0},
		"an empty query":                     {headWithRequestLine("POST /mcp? HTTP/1.1"), other, 0},
		"an escape in the path":              {headWithRequestLine("POST /mcp%2f HTTP/1.1"), other, 0},
		"a fragment":                         {headWithRequestLine("POST /mcp#a HTTP/1.1"), other, 0},
		"a path that is not ASCII":           {headWithRequestLine("POST /mcp/\u00e9 HTTP/1.1"), other, 0},
		"a path that is not UTF-8":           {headWithRequestLine("POST /mcp/\xff HTTP/1.1"), other, 0},
		"a bare LF in the request line":      {headWithRequestLine("POST /mcp HTTP/1.1\nA: b"), other, 0},
		"a bare CR in the request line":      {headWithRequestLine("POST /mcp HTTP/1.1\rA: b"), other, 0},
		"no header":                          {"POST /mcp HTTP/1.1\r\n\r\n", other, 0},
		"no host":                            {strings.Replace(plainHead, "Host: a\r\n", "", 1), other, 0},
		"an empty host":                      {strings.Replace(plainHead, "Host: a", "Host: ", 1), other, 0},
		"two hosts":                          {headWith("host: a"), other, 0},
		"a host that is none":                {strings.Replace(plainHead, "Host: a", "Host: a@b", 1), other, 0},
		"a host with a comma":                {strings.Replace(plainHead, "Host: a", "Host: a,b", 1), other, 0},
		"no length":                          {headWithLength("A: b"), other, 0},
		"an empty length":                    {headWithLength("Content-Length: "), other, 0},
		"two equal lengths":                  {headWith("content-length: 5"), other, 0},
		"two lengths that differ":            {headWith("Content-Length: 6"), other, 0},
		"a list of lengths":                  {headWithLength("Content-Length: 5,5"), other, 0},
		"two numbers":                        {headWithLength("Content-Length: 5 5"), other, 0},
		"a signed length":                    {headWithLength("Content-Length: +5"), other, 0},
		"a length in hexadecimal":            {headWithLength("Content-Length: 0x5"), other, 0},
		"a length that is too long":          {headWithLength("Content-Length: 00000005"), other, 0},
		"a space before the colon of length": {headWithLength("Content-Length : 5"), other, 0},
		"chunks":                             {headWith("Transfer-Encoding: chunked"), other, 0},
		"chunks in place of a length":        {headWithLength("transfer-encoding: chunked"), other, 0},
		"an encoding that is none":           {headWith("Transfer-Encoding: identity"), other, 0},
		"trailers":                           {headWith("Trailer: A"), other, 0},
		"a client that takes trailers":       {headWith("TE: trailers"), other, 0},
		"a client that waits for 100":        {headWith("Expect: 100-continue"), other, 0},
		"an upgrade":                         {headWith("Upgrade: h2c"), other, 0},
		"the end of the connection":          {headWith("Connection: close"), other, 0},
		"that, in a list":                    {headWith("Connection: keep-alive, close"), other, 0},
		"that, in a second header":           {headWith("Connection: keep-alive\r\nConnection: close"), other, 0},
		"Pragma, which net/http translates":  {headWith("Pragma: no-cache"), other, 0},
		"a header for a proxy":               {headWith("Proxy-Connection: close"), other, 0},
		"a folded header":                    {headWith("A: b\r\n c"), other, 0},
		"a header folded with a tab":         {headWith("A: b\r\n\tc"), other, 0},
		"a first header that is folded":      {headWithRequestLine("POST /mcp HTTP/1.1\r\n A: b"), other, 0},
		"a line without a colon":             {headWith("A"), other, 0},
		"a header without a name":            {headWith(": b"), other, 0},
		"a space before a colon":             {headWith("A : b"), other, 0},
		"a name that is not ASCII":           {headWith("\u017fost: b"), other, 0},
		"a bare LF in a header":              {headWith("A: b\nC: d"), other, 0},
		"a bare CR in a header":              {headWith("A: b\rC: d"), other, 0},
		"a zero byte":                        {headWith("A: b\x00"), other, 0},
		"a value that is not ASCII":          {headWith("A: \u00e9"), other, 0},
		"more headers than there may be":     {headWith(strings.Repeat("A: b\r\n", maxHeaders-2) + "A: b"), other, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h, size, body, is := readHead([]byte(tt.text), nil)
			if is != tt.is || body != tt.body || (h != nil) != (is == plain) {
				t.Fatalf("it is %v with a body of %d (a head: %t); want %v and %d", is, body, h != nil, tt.is, tt.body)
			}
			if is == plain && size != strings.Index(tt.text, "\r\n\r\n")+4 {
				t.Errorf("the head has %d bytes", size)
			}
		})
	}
}

// plainHeadOf returns the head of a plain request.
func plainHeadOf(t testing.TB, text string) *requestHead {
	h, _, _, is := readHead([]byte(text), nil)
	if is != plain {
		t.Fatalf("%q is %v", text, is)
	}
	return h
}

func TestAHeadIsReusedOnlyIfNothingButItsLengthDiffers(t *testing.T) {
	last := headWith("A: b")
	for name, tt := range map[string]struct {
		text   string
		is     requestForm
		reused bool
		body   int
	}{
		"the same":                        {last, plain, true, 5},
		"a length with more digits":       {strings.Replace(last, ": 5", ": 1234567", 1), plain, true, 1234567},
		"a length with zeros":             {strings.Replace(last, ": 5", ": 007", 1), plain, true, 7},
		"a body that ends as a head does": {last + "x\r\n\r\n", plain, true, 5},
		"another value":                   {strings.Replace(last, "A: b", "A: c", 1), plain, false, 5},
		"another path":                    {strings.Replace(last, "/mcp", "/mcp/", 1), plain, false, 5},
		"a header less":                   {plainHead, plain, false, 5},
		"a header more behind":            {strings.Replace(last, "\r\n\r\n", "\r\nC: d\r\n\r\n", 1), plain, false, 5},
		"a space behind the length":       {strings.Replace(last, ": 5", ": 5 ", 1), plain, false, 5},
		"a space before the length":       {strings.Replace(last, ": 5", ":  5", 1), plain, false, 5},
		"a length that is too long":       {strings.Replace(last, ": 5", ": 12345678", 1), other, false, 0},
		"a sign":                          {strings.Replace(last, ": 5", ": -5", 1), other, false, 0},
		"no digits":                       {strings.Replace(last, ": 5", ": ", 1), other, false, 0},
		"another length behind":           {strings.Replace(last, "\r\n\r\n", "\r\nContent-Length: 6\r\n\r\n", 1), other, false, 0},
		"the end of the connection":       {strings.Replace(last, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1), other, false, 0},
		"a head without its last byte":    {last[:len(last)-1], incomplete, false, 0},
		"a head that ends in the length":  {last[:strings.Index(last, "5")+1], incomplete, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := plainHeadOf(t, last)
			h, size, body, is := readHead([]byte(tt.text), before)
			if is != tt.is || body != tt.body || (h == before) != tt.reused {
				t.Errorf("it is %v with a body of %d (reused: %t); want %v, %d, %t", is, body, h == before, tt.is, tt.body, tt.reused)
			}
			if is == plain && size != strings.Index(tt.text, "\r\n\r\n")+4 {
				t.Errorf("the head has %d bytes", size)
			}
		})
	}
}

// FuzzAPlainHeadMeansTheSameToNetHTTP: net/http and the check before it understand a plain request as readHead does, whatever
// request came before it on the connection.
func FuzzAPlainHeadMeansTheSameToNetHTTP(f *testing.F) {
	heads := []string{
		plainHead, usualHead, headWithLength("content-length:\t 007 "), headWithLength("Content-Length: 9999999"), headWithLength("Content-Length: 0"),
		"POST /mcp HTTP/1.1\r\nContent-Length: 12\r\nHost: [::1]:7420\r\nUser-Agent: x/1 (y)\r\n\r\n",
		headWith("Accept: a\r\naccept: b"), headWith("Connection: keep-alive\r\nconnection: Keep-Alive"), headWith("A:\t b:c \t"), headWith("A_b: "),
	}
	odd := []string{
		"", "POST /mcp", "POST /mcp HTTP/1.1\r\n\r\n", strings.ReplaceAll(plainHead, "\r\n", "\n"), headWithRequestLine("POST /mcp/%41?b=c HTTP/1.1"),
		headWithRequestLine("POST /mcp/../%2e/a~b HTTP/1.0"), headWith("Content-Length: 6"), headWith("Transfer-Encoding: chunked"), headWith("A: b\r\n c"),
		headWith("A: b\nContent-Length: 6"), headWith("A: b\rC: d"), headWith("Host: b"), headWith("Connection: close"), headWith("Pragma: no-cache"),
		headWith("Trailer: A"), headWith("Expect: 100-continue"), headWith("Upgrade: h2c"), headWith("A : b"), headWith("A: \u00e9\x00\xff"),
		headWithLength("Content-Length: +5"), headWithLength("Content-Length : 5"), headWithLength("Content-Length: 5, 5"), "\r\n" + plainHead, httphead.Refused,
	}
	for n, text := range append(slices.Clone(heads), odd...) {
		f.Add(text, heads[n%len(heads)])
		f.Add(text, text)
		f.Add(text+"hello"+plainHead, text)
		f.Add(strings.Replace(text, ": 5", ": 123", 1), text)
		f.Add(strings.Replace(text, "\r\n\r\n", "\r\nContent-Length: 6\r\n\r\n", 1), text)
	}
	f.Fuzz(func(t *testing.T, text, before string) {
		h, size, body, is := readHead([]byte(text), nil)
		last, _, _, wasPlain := readHead([]byte(before), nil)
		if wasPlain == plain {
			again, sizeAgain, bodyAgain, isAgain := readHead([]byte(text), last)
			if sizeAgain != size || bodyAgain != body || isAgain != is {
				t.Fatalf("%q is %v, %d and %d; behind %q it is %v, %d and %d", text, is, size, body, before, isAgain, sizeAgain, bodyAgain)
			}
			if is == plain && (again.host != h.host || *again.url != *h.url || !maps.EqualFunc(again.header, h.header, slices.Equal)) {
				t.Fatalf("%q is %+v; behind %q it is %+v", text, h, before, again)
			}
		}
		if is == plain {
			mustMeanTheSame(t, text, h, size, body)
		}
	})
}

// mustMeanTheSame compares what readHead says about the plain request at the beginning of text with what others say.
func mustMeanTheSame(t *testing.T, text string, h *requestHead, size, body int) {
	const behind = "\x00\x01" // the next bytes
	if body > bufferSize {
		return // net/http reads a body of this length
	}
	text = text[:size] + (text[size:] + strings.Repeat("\x00", body))[:body] + behind
	b := bufio.NewReader(strings.NewReader(text))
	r, err := http.ReadRequest(b)
	if err != nil {
		t.Fatalf("%q: net/http says %v", text, err)
	}
	length := r.Header["Content-Length"]
	delete(r.Header, "Content-Length")
	switch {
	case len(length) != 1:
		t.Fatalf("%q: net/http reads the lengths %q", text, length)
	case r.Method != http.MethodPost || r.Proto != "HTTP/1.1" || r.ProtoMajor != 1 || r.ProtoMinor != 1:
		t.Fatalf("%q: net/http reads %s and %s", text, r.Method, r.Proto)
	case *r.URL != *h.url || r.RequestURI != h.url.Path || r.URL.EscapedPath() != h.url.Path || r.URL.RawQuery != "":
		t.Fatalf("%q: net/http reads the address %+v; want %+v", text, r.URL, h.url)
	case r.Host != h.host:
		t.Fatalf("%q: net/http reads the host %q; want %q", text, r.Host, h.host)
	case r.Close || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0:
		t.Fatalf("%q: net/http reads close %t, encodings %q, trailers %v", text, r.Close, r.TransferEncoding, r.Trailer)
	case r.ContentLength != int64(body):
		t.Fatalf("%q: net/http reads a length of %d; want %d", text, r.ContentLength, body)
	case !maps.EqualFunc(r.Header, h.header, slices.Equal):
		t.Fatalf("%q: net/http reads the headers %q; want %q", text, r.Header, h.header)
	}
	got, err := io.ReadAll(r.Body)
	rest, _ := io.ReadAll(b)
	if err != nil || string(got) != text[size:size+body] || string(rest) != behind {
		t.Fatalf("%q: net/http reads the body %q (%v), and leaves %q", text, got, err, rest)
	}
	for _, piece := range []int{1, len(text)} {
		var c httphead.Checker
		for part := range slices.Chunk(bytes.TrimSuffix([]byte(text), []byte(behind)), piece) {
			if n, ok := c.Check(part); !ok || n != len(part) {
				t.Fatalf("%q is refused before net/http", text)
			}
		}
		if c != (httphead.Checker{}) {
			t.Fatalf("%q: the check expects more of the request: %+v", text, c)
		}
	}
}
