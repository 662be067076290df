package npm_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
	words "github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
)

// An answer is what came of one request, byte for byte.
type answer struct {
	result, err json.RawMessage
}

// parse takes an answer out of a message; ok is false where it is none.
func parse(message []byte) (id string, a answer, ok bool) {
	var m struct {
		ID     json.RawMessage
		Method string
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal(message, &m); err != nil || m.Method != "" {
		return "", a, false
	}
	return string(m.ID), answer{m.Result, m.Error}, m.Result != nil || m.Error != nil
}

// A pipe is a conversation over stdio, with no SDK in between.
type pipe struct {
	era  string
	in   io.Writer
	out  *bufio.Reader
	next int
	dog  *watchdog
}

// dial starts a server and talks to it in the era given.
func dial(t *testing.T, era string, s words.Server) *pipe {
	t.Helper()
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Env = os.Environ()
	for name, value := range s.Env {
		cmd.Env = append(cmd.Env, name+"="+value.Reveal())
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A server that says nothing ends the test, not the other way round.
	dog := watch(patience, cmd)
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		dog.Stop()
		if t.Failed() {
			t.Logf("%s said on stderr:\n%s", s.ID, &log)
		}
	})
	p := &pipe{era: era, in: in, out: bufio.NewReaderSize(out, 1<<20), dog: dog}
	if era == legacy {
		hello := p.ask(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
		if hello.err != nil {
			t.Fatalf("initialize: %s", hello.err)
		}
		fmt.Fprintln(p.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return p
}

// ask sends a request and waits for its answer.
func (p *pipe) ask(t *testing.T, method, params string) answer {
	t.Helper()
	if p.era == modern {
		meta := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
		if params != "{}" {
			meta += ","
		}
		params = meta + params[1:]
	}
	p.next++
	fmt.Fprintf(p.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", p.next, method, params)
	for {
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			p.dog.check(t)
			t.Fatalf("%s: the server hung up: %v", method, err)
		}
		if id, a, ok := parse(line); ok && id == fmt.Sprint(p.next) {
			return a
		}
	}
}

// names lists the names in the result of tools/list, but for the tool of ours that all
// keyless clients see.
func names(t *testing.T, result []byte) []string {
	t.Helper()
	var list struct {
		Tools      []struct{ Name string }
		NextCursor *string
	}
	if err := json.Unmarshal(result, &list); err != nil || list.NextCursor != nil {
		t.Fatalf("tools/list: %v, another page: %v: %.300s", err, list.NextCursor != nil, result)
	}
	got := []string{}
	for _, tool := range list.Tools {
		if tool.Name != "switchboard_read" && tool.Name != "switchboard_resume" {
			got = append(got, tool.Name)
		}
	}
	return got
}

// servers reads the configuration in dir.
func servers(t *testing.T, dir string) map[words.ServerID]words.Server {
	t.Helper()
	cfg, err := config.Load(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{Env: os.LookupEnv})
	if err != nil {
		t.Fatal(err)
	}
	by := map[words.ServerID]words.Server{}
	for _, s := range cfg.Servers {
		by[s.ID] = s
	}
	return by
}

// pinned is what each server offers, at the version of the lock, to a client
// without capabilities.
var pinned = map[words.ServerID]struct {
	eras  []string
	count int
}{
	"everything": {[]string{legacy}, 13},
	"files":      {[]string{legacy}, 14},
	"git":        {[]string{legacy}, 28},
	"glossary":   {[]string{modern}, 2},
	"memory":     {[]string{legacy}, 9},
	"passwords":  {[]string{legacy, modern}, 15},
	"thinking":   {[]string{legacy}, 1},
}

func TestEveryPinnedServerStartsAndListsItsTools(t *testing.T) {
	all := servers(t, real(t))
	for id := range all {
		if _, ok := pinned[id]; !ok {
			t.Errorf("%s: say in this test what it offers", id)
		}
	}
	for id, want := range pinned {
		for _, era := range want.eras {
			t.Run(string(id)+" "+era, func(t *testing.T) {
				p := dial(t, era, all[id])
				list := p.ask(t, "tools/list", "{}")
				got := names(t, list.result)
				if len(got) != want.count {
					t.Errorf("%d tools, want %d: %q", len(got), want.count, got)
				}
				t.Logf("%s offers %d tools", id, len(got))
			})
		}
	}
}

func TestTheModernServerHasNoLegacyEra(t *testing.T) {
	s := servers(t, real(t))["glossary"]
	p := dial(t, modern, s)
	p.era = legacy // so that the request is sent as it is
	hello := p.ask(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if !strings.Contains(string(hello.err), "-32022") {
		t.Errorf("initialize was answered with %s %s, want error -32022", hello.result, hello.err)
	}
}
