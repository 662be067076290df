package served_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// everyServer is a configuration of a fake of each era on each transport, whose
// tool is called as it is: stdio_legacy and so on. HTTP with SSE is legacy only.
func everyServer(t *testing.T) (archive string, tools []string) {
	t.Helper()
	var servers []string
	for _, era := range []string{"legacy", "modern"} {
		for _, transport := range []string{"stdio", "http", "sse"} {
			if transport == "sse" && era == "modern" {
				continue
			}
			name := transport + "_" + era
			args := []string{fmt.Sprintf(rig.Tool, name)}
			if era == "modern" {
				args = append(args, "modern")
			}
			tools = append(tools, name)
			id := strings.ReplaceAll(name, "_", "-")
			if transport == "stdio" {
				servers = append(servers, rig.FakeRow(id, args...))
				continue
			}
			var handler http.Handler = fakeserver.New(args)
			if transport == "sse" {
				handler = &fakeserver.SSEServer{Server: fakeserver.New(args)}
			}
			server := httptest.NewServer(handler)
			t.Cleanup(func() {
				server.CloseClientConnections()
				server.Close()
			})
			servers = append(servers, fmt.Sprintf("%s: {transport: http, url: %s/mcp}", id, server.URL))
		}
	}
	return rig.Fakes(servers...), tools
}

// A talker is a client of one era on one transport, of which several calls are
// under way at once.
type talker struct {
	name   string
	modern bool
	http   *rig.HTTPSession
	stdio  *rig.StdioSession
}

// A talk is a call that says something before its result. Its mark is its
// progress token too.
type talk struct{ tool, mark, times, pause, logs string }

func (c talk) message(id int, modern bool) string {
	meta := fmt.Sprintf(`"_meta":{"progressToken":%q`, c.mark)
	if modern {
		meta += `,"io.modelcontextprotocol/logLevel":"debug",` + strings.TrimSuffix(strings.TrimPrefix(rig.ModernMeta, `"_meta":{`), "}")
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,%s},"arguments":{"do":"talk","mark":%q,"times":%q,"pause":%q,"logs":%q}}}`, id, c.tool, meta, c.mark, c.times, c.pause, c.logs)
}

// all makes calls at once, and returns what each heard, the answer last. Over
// stdio, where all come by one pipe, they are told apart by their mark.
func (c *talker) all(talks []talk) (map[string][]string, error) {
	heard := map[string][]string{}
	if c.stdio != nil {
		go func() {
			for i, call := range talks {
				fmt.Fprintln(c.stdio.In, call.message(i, c.modern))
			}
		}()
		for answers := 0; answers < len(talks); {
			line, err := c.stdio.ReadLine()
			if err != nil {
				return heard, err
			}
			for _, call := range talks {
				if strings.Contains(string(line), call.mark) {
					heard[call.mark] = append(heard[call.mark], string(line))
				}
			}
			if m := rig.ParseMessage(line); m.Result != nil || m.Error != nil {
				answers++
			}
		}
		return heard, nil
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	var failed error
	for i, call := range talks {
		work.Go(func() {
			header := http.Header{}
			if c.modern {
				header = http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {call.tool}}
			}
			m, r, err := c.http.Exchange(call.message(i, c.modern), header)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			heard[call.mark] = append(r.Said, string(m.Raw))
		})
	}
	work.Wait()
	return heard, failed
}

// complete checks that a call heard all of its own, in order, and then its
// result.
func (c talk) complete(t *testing.T, who string, heard []string) {
	t.Helper()
	progress, logs := 0, 0
	for i, text := range heard {
		var m struct {
			Method string
			Params struct {
				ProgressToken, Message string
				Progress               int
				Data                   struct {
					N    int
					Mark string
				}
			}
		}
		_ = json.Unmarshal([]byte(text), &m)
		p := m.Params
		switch {
		case m.Method == "notifications/progress" && p.Progress == progress && p.ProgressToken == c.mark && p.Message == c.mark:
			progress++
		case m.Method == "notifications/message" && p.Data.N == logs && p.Data.Mark == c.mark:
			logs++
		case m.Method == "" && i == len(heard)-1:
		default:
			t.Errorf("%s: %+v heard, after %d of progress and %d logs: %s", who, c, progress, logs, text)
			return
		}
	}
	wanted := map[string]string{"yes": c.times}[c.logs]
	if got := fmt.Sprint(progress, " ", logs); got != c.times+" "+wanted && got != c.times+" 0"+wanted || len(heard) == 0 || rig.ParseMessage([]byte(heard[len(heard)-1])).Result == nil {
		t.Errorf("%s: %+v heard %s of progress and logs, and then %.300s", who, c, got, heard[max(0, len(heard)-1):])
	}
}

func TestNothingThatIsSaidBeforeAResultIsLostOrReordered(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	archive, tools := everyServer(t)
	dir := rig.LayOut(t, archive)
	// Each has a switchboard of its own, and so processes behind of its own: a
	// log message of a process is of a call only while that is alone there.
	clients := []*talker{
		{name: "http legacy", http: rig.Serve(t, dir).Open(t, "/mcp", false)},
		{name: "http modern", http: rig.Serve(t, dir).Open(t, "/mcp", true), modern: true},
		{name: "stdio legacy", stdio: rig.Stdio(t, dir, false)},
		{name: "stdio modern", stdio: rig.Stdio(t, dir, true), modern: true},
	}
	for _, tt := range []struct {
		name, times, pause string
		calls              int // of each client at each server
	}{
		{"one call, back to back", "1000", "0s", 1},
		{"one call, 2 ms apart", "500", "2ms", 1},
		{"three calls at once, back to back", "300", "0s", 3},
		{"three calls at once, 2 ms apart", "200", "2ms", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var work sync.WaitGroup
			var late wait.Lateness
			for _, client := range clients {
				var talks []talk
				for _, name := range tools {
					if strings.HasPrefix(name, "sse") && tt.pause != "0s" {
						continue // its one stream is as a pipe, and flushes each message
					}
					logs := map[bool]string{true: "yes"}[tt.calls == 1 || strings.HasPrefix(name, "http")]
					for i := range tt.calls {
						talks = append(talks, talk{name, fmt.Sprintf("(%s, %s, %d)", client.name, name, i), tt.times, tt.pause, logs})
					}
				}
				work.Go(func() {
					heard, err := client.all(talks)
					if wait.TimedOut(err) {
						late.Add("%s: %v", client.name, err)
						return
					}
					if err != nil {
						t.Errorf("%s: %v", client.name, err)
					}
					for _, call := range talks {
						call.complete(t, client.name, heard[call.mark])
					}
				})
			}
			work.Wait()
			late.State(t)
		})
	}
}

// AZ-03 on the served path. Ids and progress tokens are the same for all.
func TestAZ03_EveryAnswerOfTwoHundredSessionsGoesToItsCaller(t *testing.T) {
	rig.WatchRaces(t)
	law.Hold(t, law.NothingLeaks)
	const sessions, calls, each = 200, 20, 2 // of a session at once
	archive, tools := everyServer(t)
	archive = strings.Replace(archive, "servers:\n", "servers:\n  fifth: "+strings.TrimPrefix(rig.FakeRow("", fmt.Sprintf(rig.Tool, "fifth")), ": ")+"\n", 1)
	tools = append(tools, "fifth")
	g := rig.Serve(t, rig.LayOut(t, archive))

	var all []*rig.HTTPSession
	for i := range sessions {
		all = append(all, g.Open(t, "/mcp", i%2 == 0))
	}
	start := time.Now()
	var work sync.WaitGroup
	var late wait.Lateness
	for n, s := range all {
		ids := make(chan int)
		go func() {
			defer close(ids)
			for id := range calls {
				ids <- id
			}
		}()
		for range each {
			work.Go(func() {
				for id := range ids {
					c := talk{tool: tools[(n+id)%len(tools)], mark: "7", times: "1"}
					nonce := fmt.Sprintf("nonce-%d-%d.", n, id)
					body := strings.ReplaceAll(c.message(id, s.Modern), `"mark":"7"`, fmt.Sprintf(`"mark":%q`, nonce))
					header := http.Header{}
					if s.Modern {
						header = http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {c.tool}}
					}
					m, r, err := s.Exchange(body, header)
					if wait.TimedOut(err) {
						late.Add("session %d, call %d of %s: %v", n, id, c.tool, err)
						continue
					}
					if err != nil {
						t.Errorf("session %d, call %d of %s: %v", n, id, c.tool, err)
						continue
					}
					heard := strings.Join(append(r.Said, string(m.Raw)), "\n")
					if rig.Code(m) == "SB-RCPT-001" && !strings.Contains(heard, "nonce-") { // the disk is busy
						late.Add("session %d, call %d of %s was not recorded in time", n, id, c.tool)
						continue
					}
					if len(r.Said) != 1 || strings.Count(heard, nonce) != 2 || strings.Count(heard, "nonce-") != 2 || !strings.Contains(string(m.Raw), fmt.Sprintf(`"id":%d,`, id)) {
						t.Errorf("session %d, call %d of %s heard: %s", n, id, c.tool, heard)
					}
				}
			})
		}
	}
	work.Wait()
	t.Logf("%d calls in %v", sessions*calls, time.Since(start))
	late.State(t)
}
