package httphead

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// passes returns the part of the text that may be read, if it arrives in pieces of this size.
func passes(text string, size int) (read string, ok bool) {
	var h Checker
	for len(text) > 0 {
		piece := text[:min(size, len(text))]
		n, ok := h.Check([]byte(piece))
		read += piece[:n]
		if !ok {
			return read, false
		}
		text = text[len(piece):]
	}
	return read, true
}

func TestAttack11JS11HeadsThatTwoReadersWouldDivideDifferentlyAreRefused(t *testing.T) {
	const get, post = "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\n"
	for name, tt := range map[string]struct {
		text string
		read string // what is read before the refusal
	}{
		"a request":                            {get, ""},
		"two":                                  {get + get, ""},
		"a body, and another request":          {post + "Content-Length: 5\r\n\r\na\nb\rc" + get, ""},
		"space around the length":              {post + "content-LENGTH: \t5 \r\n\r\nabcde" + get, ""},
		"an empty body":                        {post + "Content-Length: 0\r\n\r\n" + get, ""},
		"chunks":                               {post + "Transfer-Encoding: chunked\r\n\r\n0\n\n", ""},
		"an empty line before":                 {"\r\n" + get, ""},
		"a folded header":                      {post + "A: b\r\n c: d\r\n\r\n", post + "A: b\r\n"},
		"a header folded with a tab":           {post + "A: b\r\n\tc: d\r\n\r\n", post + "A: b\r\n"},
		"a fold at the first header":           {"GET / HTTP/1.1\r\n Host: a\r\n\r\n", "GET / HTTP/1.1\r\n"},
		"LF behind the request line":           {"GET / HTTP/1.1\nHost: a\r\n\r\n", "GET / HTTP/1.1"},
		"LF behind a header":                   {post + "A: b\nC: d\r\n\r\n", post + "A: b"},
		"LF behind a length":                   {post + "Content-Length: 5\n\r\nabcde", post + "Content-Length: 5"},
		"LF behind the head":                   {post + "\n", post},
		"LF within a name":                     {post + "A\nb: c\r\n\r\n", post + "A"},
		"CR within a value":                    {post + "A: b\rC: d\r\n\r\n", post + "A: b\r"},
		"CR behind the head":                   {post + "\rA: b\r\n\r\n", post + "\r"},
		"two lengths that are equal":           {post + "Content-Length: 5\r\nContent-length: 5\r\n\r\nabcde", post + "Content-Length: 5\r\nContent-length"},
		"two lengths that differ":              {post + "Content-Length: 5\r\nA: b\r\nContent-Length: 6\r\n\r\nabcde", post + "Content-Length: 5\r\nA: b\r\nContent-Length"},
		"a length and chunks":                  {post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", post + "Content-Length: 5\r\nTransfer-Encoding"},
		"chunks and a length":                  {post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", post + "Transfer-Encoding: chunked\r\nContent-Length"},
		"two encodings":                        {post + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", post + "Transfer-Encoding: gzip\r\nTransfer-Encoding"},
		"a list of lengths":                    {post + "Content-Length: 5,5\r\n\r\n", post + "Content-Length: 5"},
		"a signed length":                      {post + "Content-Length: +5\r\n\r\n", post + "Content-Length: "},
		"a length of two numbers":              {post + "Content-Length: 5 5\r\n\r\n", post + "Content-Length: 5 "},
		"no length":                            {post + "Content-Length: \r\n\r\n", post + "Content-Length: "},
		"a length beyond all numbers":          {post + "Content-Length: 99999999999999999999\r\n\r\n", post + "Content-Length: 999999999999999"},
		"a second request that is bad":         {get + "GET / HTTP/1.1\nHost: a\r\n\r\n", get + "GET / HTTP/1.1"},
		"a request behind a body, that is bad": {post + "Content-Length: 1\r\n\r\nx" + "GET /\n", post + "Content-Length: 1\r\n\r\nx" + "GET /"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 2, 7, 1 << 20} {
				got, ok := passes(tt.text, size)
				switch {
				case tt.read == "" && (!ok || got != tt.text):
					t.Errorf("in pieces of %d, refused after %q", size, got)
				case tt.read != "" && (ok || got != tt.read):
					t.Errorf("in pieces of %d, %q is read (%t); want %q", size, got, ok, tt.read)
				}
			}
			if tt.read == "" {
				return
			}
			// net/http does not read the request if its head is refused.
			r := bufio.NewReader(strings.NewReader(tt.read + Refused))
			for {
				q, err := http.ReadRequest(r)
				if err != nil {
					if errors.Is(err, io.EOF) {
						t.Error("net/http reads the end of the connection, and does not answer")
					}
					break
				}
				if _, err := io.Copy(io.Discard, q.Body); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// FuzzHeadsDivideRequestsAsNetHTTPDoes: net/http divides everything that passes into the same
// bodies, in whatever pieces it arrives.
func FuzzHeadsDivideRequestsAsNetHTTPDoes(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcdeGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "\r\nGET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n", "GET / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read, ok := passes(text, len(text)+1)
		if again, okAgain := passes(text, 1); again != read || okAgain != ok {
			t.Fatalf("in one piece %q (%t), byte by byte %q (%t)", read, ok, again, okAgain)
		}
		r := bufio.NewReader(strings.NewReader(read))
		var h Checker
		for at := 0; ; {
			q, err := http.ReadRequest(r)
			if err != nil || len(q.TransferEncoding) > 0 || !q.ProtoAtLeast(1, 1) {
				return // net/http answers 400, or the connection ends with this request
			}
			body, err := io.ReadAll(q.Body)
			if err != nil {
				return
			}
			for at < len(read) && h.at != bodyBytes {
				_, _ = h.Check([]byte{read[at]})
				if at++; h.at == requestLine && !h.begun && at > 2 && strings.HasSuffix(read[:at], "\r\n\r\n") {
					break
				}
			}
			if int64(len(body)) != h.body {
				t.Fatalf("%q: net/http reads a body of %d bytes, and %d are skipped", read, len(body), h.body)
			}
			_, _ = h.Check(body)
			if at += len(body); !bytes.Equal([]byte(read[at-len(body):at]), body) {
				t.Fatalf("%q: the body is %q", read, body)
			}
		}
	})
}

// BenchmarkHeads measures what the check adds to a request.
func BenchmarkHeads(b *testing.B) {
	head := "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:7420\r\nUser-Agent: " + strings.Repeat("a", 120) + "\r\nAuthorization: Bearer " + strings.Repeat("k", 60) +
		"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: work\r\nContent-Length: 1024\r\n\r\n"
	request := []byte(head + strings.Repeat("x", 1024))
	b.ReportAllocs()
	var h Checker
	for b.Loop() {
		if _, ok := h.Check(request); !ok {
			b.Fatal("it is refused")
		}
	}
}
