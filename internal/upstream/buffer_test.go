package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/upstream/frame"
	"github.com/summit-switchboard/switchboard/test/law"
)

func TestBigAnswersDoNotMixThoughTheyShareMemory(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	for _, era := range eras {
		t.Run(string(era), func(t *testing.T) {
			site := newSite(t, era, onCalls(func(w http.ResponseWriter, _ *http.Request, m *msg) {
				says, _ := m.Params.Arguments["text"].(string)
				writeResult(w, m, `{"text":"`+strings.Repeat(says, 100_000/len(says))+`","resultType":"complete"}`)
			}))
			f := readyFleet(t, Options{}, site.server())
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for j := range 20 {
						says := fmt.Sprintf("%d.%d;", i, j)
						r, err := f.Call(t.Context(), echoCall("one", `{"text":"`+says+`"}`))
						if err != nil {
							t.Error(err)
							return
						}
						if want := `{"text":"` + strings.Repeat(says, 100_000/len(says)) + `","resultType":"complete"}`; string(r.JSON) != want {
							t.Errorf("%s: got %.40s", says, r.JSON)
						}
						if r.Release == nil {
							t.Error("the buffer need not be released")
							return
						}
						if more := append(r.JSON, bytes.Repeat([]byte("!"), r.Spare)...); r.Spare < frame.SpareRoom/2 || &more[0] != &r.JSON[0] {
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
	f := readyFleet(t, Options{}, stdioFake("one", "legacy"))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 10 {
				text := strings.Repeat(fmt.Sprintf("%d.%d;", i, j), 50_000)
				r, err := f.Call(t.Context(), echoCall("one", `{"text":"`+text+`"}`))
				if err != nil {
					t.Error(err)
					return
				}
				if r.Release == nil || r.Spare < frame.SpareRoom/2 {
					t.Errorf("%d bytes of the buffers are spare", r.Spare)
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

func TestABigAnswerMayBeginWithSpaces(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("one", "calls"))
	r, err := f.Call(t.Context(), echoCall("one", `{"do":"indented"}`))
	if want := `{"text":"` + strings.Repeat("x", 100_000) + `"}`; err != nil || string(r.JSON) != want {
		t.Errorf("got %.40s, %v", r.JSON, err)
	}
}
