package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/summit-switchboard/switchboard/test/law"
)

func TestWhatIsLentIsLargeEnoughAndNotMuchMore(t *testing.T) {
	sizes := map[int]int{} // by lender
	for n := maxUnpooled + 1; n <= 2*maxMessage+1; n += 1 + n/1000 {
		i, size := sizeClass(n)
		if size < n || size > n+n/4+1 || i >= numSizes {
			t.Fatalf("%d bytes: lender %d has %d", n, i, size)
		}
		if was, ok := sizes[i]; ok && was != size {
			t.Fatalf("lender %d has %d bytes, and %d", i, was, size)
		}
		sizes[i] = size
	}
}

func TestBodiesAreReadWholeWhateverLengthTheyPromise(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 4096, maxUnpooled - 1, maxUnpooled, maxUnpooled + 1, 1 << 20, 2 << 20, 2<<20 + 1, 5 << 20, maxMessage} {
		body := bytes.Repeat([]byte("0123456789abcde\n"), n/16+1)[:n]
		for _, promised := range []int{-1, n, 1, 3 << 20} {
			for name, r := range map[string]io.Reader{"": bytes.NewReader(body), "in pieces ": iotest.HalfReader(bytes.NewReader(body))} {
				got, l, err := readAll(r, promised, maxMessage)
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("%s%d bytes, %d promised: %d, %v", name, n, promised, len(got), err)
				}
				if lent := l.releaseOnce() != nil; lent != (cap(got) > maxUnpooled) {
					t.Errorf("%d bytes, %d promised: lent %v", n, promised, lent)
				}
				l.release()
			}
		}
	}
	if _, _, err := readAll(strings.NewReader(strings.Repeat("x", maxMessage+1)), -1, maxMessage); err != errTooLarge { //nolint:errorlint // as it is made
		t.Errorf("one byte too many: %v", err)
	}
}

func TestWhatIsRepaidTwiceIsLentOnce(t *testing.T) {
	l := borrowBuffer(maxUnpooled + 1)
	repay := l.releaseOnce()
	repay()
	repay()
	if a, b := borrowBuffer(maxUnpooled+1), borrowBuffer(maxUnpooled+1); &a.bytes[0] == &b.bytes[0] {
		t.Error("two have the same memory")
	}
}

func TestBigAnswersDoNotMixThoughTheyShareMemory(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	for _, era := range eras {
		t.Run(string(era), func(t *testing.T) {
			site := newSite(t, era, calls(func(w http.ResponseWriter, _ *http.Request, m *msg) {
				says, _ := m.Params.Arguments["text"].(string)
				reply(w, m, `{"text":"`+strings.Repeat(says, 100_000/len(says))+`","resultType":"complete"}`)
			}))
			f := ready(t, Options{}, site.server())
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for j := range 20 {
						says := fmt.Sprintf("%d.%d;", i, j)
						r, err := f.Call(t.Context(), use("one", `{"text":"`+says+`"}`))
						if err != nil {
							t.Error(err)
							return
						}
						if want := `{"text":"` + strings.Repeat(says, 100_000/len(says)) + `","resultType":"complete"}`; string(r.JSON) != want {
							t.Errorf("%s: got %.40s", says, r.JSON)
						}
						if r.Release == nil {
							t.Error("nobody wants the memory back")
							return
						}
						if more := append(r.JSON, bytes.Repeat([]byte("!"), r.Spare)...); r.Spare < spareRoom/2 || &more[0] != &r.JSON[0] {
							t.Errorf("%d bytes are spare, of %d", r.Spare, cap(r.JSON)-len(r.JSON))
						}
						clear(r.JSON)
						r.Release()
					}
				})
			}
			all.Wait()
		})
	}
}

func TestBigAnswersOfAProcessDoNotMixThoughTheyShareMemory(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	f := ready(t, Options{}, child("one", "legacy"))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 10 {
				text := strings.Repeat(fmt.Sprintf("%d.%d;", i, j), 50_000)
				r, err := f.Call(t.Context(), use("one", `{"text":"`+text+`"}`))
				if err != nil {
					t.Error(err)
					return
				}
				if r.Release == nil || r.Spare < spareRoom/2 {
					t.Errorf("of what is lent %d bytes are spare", r.Spare)
					return
				}
				if !json.Valid(r.JSON) || !bytes.Contains(r.JSON, []byte(`"`+text+`"`)) || !bytes.HasPrefix(r.JSON, []byte(`{"content":[],"got":{`)) {
					t.Errorf("%d.%d: got %.60s", i, j, r.JSON)
				}
				clear(r.JSON[:cap(r.JSON)])
				r.Release()
			}
		})
	}
	all.Wait()
}

func TestABigAnswerIsFoundBehindTheSpaceBeforeIt(t *testing.T) {
	f := ready(t, Options{}, child("one", "calls"))
	r, err := f.Call(t.Context(), use("one", `{"do":"indented"}`))
	if want := `{"text":"` + strings.Repeat("x", 100_000) + `"}`; err != nil || string(r.JSON) != want {
		t.Errorf("got %.40s, %v", r.JSON, err)
	}
}

// BenchmarkReadAll reads a MiB and gives its memory back.
func BenchmarkReadAll(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 1<<20+100)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		_, l, err := readAll(bytes.NewReader(body), len(body), maxMessage)
		if err != nil {
			b.Fatal(err)
		}
		l.release()
	}
}
