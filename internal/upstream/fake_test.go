package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/summit-switchboard/switchboard/internal/upstream/frame"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/test/system"
)

// The test binary is also the other programs of the tests: with fakeEnv the fake server of that
// name, with guardEnv the guard, and with parentEnv the process that a test kills.
const (
	fakeEnv   = "UPSTREAM_TEST_FAKE"
	parentEnv = "UPSTREAM_TEST_PARENT"
	guardArg  = "upstream-test-guard"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == guardArg:
		process.Guard(os.Stdin, os.Stdout, os.Args[2:])
	case os.Getenv(fakeEnv) != "":
		fakes[os.Getenv(fakeEnv)](&fake{in: bufio.NewReaderSize(os.Stdin, 1<<20), out: os.Stdout})
	case os.Getenv(parentEnv) != "":
		parent()
	default:
		if err := flag.Set("test.parallel", "8"); err != nil { // parallel tests mostly wait
			panic(err)
		}
		goleak.VerifyTestMain(m)
	}
}

// A fake is a server on stdio.
type fake struct {
	in  *bufio.Reader
	mu  sync.Mutex
	out io.Writer
}

// A msg is a decoded message.
type msg struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string                     `json:"name"`
		Cursor    *string                    `json:"cursor"`
		Arguments map[string]any             `json:"arguments"`
		Meta      map[string]json.RawMessage `json:"_meta"`
		RequestID json.RawMessage            `json:"requestId"`
		Level     string                     `json:"level"`
	} `json:"params"`
	Raw json.RawMessage `json:"-"`
}

func (m *msg) modern() bool { return m.Params.Meta["io.modelcontextprotocol/protocolVersion"] != nil }

func parseMsg(data []byte) *msg {
	m := &msg{Raw: bytes.Clone(bytes.TrimSpace(data))}
	if err := json.Unmarshal(data, m); err != nil {
		panic(fmt.Sprintf("%v: %s", err, data))
	}
	return m
}

// next returns the next message, or nil at the end of input.
func (f *fake) next() *msg {
	data, err := f.in.ReadBytes('\n')
	if err != nil {
		return nil
	}
	return parseMsg(data)
}

func (f *fake) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = fmt.Fprintf(f.out, format+"\n", args...)
}

func (f *fake) result(id json.RawMessage, result string) {
	f.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func (f *fake) error(id json.RawMessage, code int, text string) {
	f.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, text)
}

// tool returns a definition with members that SDKs drop.
func tool(name string) string {
	return fmt.Sprintf(`{"name":%q,"x-summit-capabilities":[{"verb":"read","resource":"fs"}],"inputSchema":{"type":"object","$schema":"x","n":1.0}}`, name)
}

const (
	legacyHello = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"fake","version":"1"}}`
	modernHello = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"2"}},"ttlMs":0,"cacheScope":"private"}`
)

// serve answers like a correct legacy server. special sees each message first.
func (f *fake) serve(special func(m *msg) (done bool)) {
	for m := f.next(); m != nil; m = f.next() {
		if special != nil && special(m) {
			continue
		}
		switch m.Method {
		case "initialize":
			f.result(m.ID, legacyHello)
		case "tools/list":
			f.result(m.ID, `{"tools":[`+tool("echo")+`,`+tool("slow")+`]}`)
		case "tools/call":
			f.result(m.ID, fmt.Sprintf(`{"content":[],"got":%s,"pid":%d}`, m.Raw, os.Getpid()))
		case "logging/setLevel", "ping":
			f.result(m.ID, `{}`)
		default:
			if m.ID != nil {
				f.error(m.ID, -32601, "no such method")
			}
		}
	}
}

// A server that starts late reads its first request after lateStart, and answers after lateAnswer: less than ProbeSilence after that, and
// more than ProbeSilence after it was started.
const lateStart, lateAnswer = link.ProbeSilence * 3 / 4, link.ProbeSilence / 2

// fakes are the fake servers by name.
var fakes = map[string]func(f *fake){
	"legacy": func(f *fake) { f.serve(nil) },
	"modern": func(f *fake) { f.serve(f.modern) },

	// Servers that fail from the start.
	"hang":  func(*fake) { forever() },
	"exit":  func(*fake) { fmt.Fprintln(os.Stderr, "no configuration \x1b[31mfound\x07"); os.Exit(3) },
	"flood": func(f *fake) { f.flood("not a message, but a lot of it") },
	"endless": func(f *fake) {
		junk := strings.Repeat("x", 1<<16)
		for {
			_, _ = io.WriteString(f.out, junk)
		}
	},

	// Servers with a peculiar handshake.
	"exits-when-probed": func(f *fake) {
		f.serve(func(m *msg) bool {
			if m.Method == "server/discover" {
				os.Exit(7)
			}
			return false
		})
	},
	"exits-when-probed-and-called": func(f *fake) { // records each start
		record, err := os.OpenFile(os.Getenv("RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		_, _ = record.WriteString("start\n")
		f.serve(func(m *msg) bool {
			if m.Method == "server/discover" || m.Method == "tools/call" {
				os.Exit(7)
			}
			return false
		})
	},
	"silent-when-probed": func(f *fake) {
		f.serve(func(m *msg) bool { return m.Method == "server/discover" })
	},
	// Servers of both eras, like those of the official SDK: initialize fixes the era of the
	// connection.
	"speaks-both":                       func(f *fake) { f.speakBoth() },
	"speaks-both-but-starts-late":       func(f *fake) { time.Sleep(lateStart); m := f.next(); time.Sleep(lateAnswer); f.speakBoth(m) },
	"speaks-both-late":                  func(f *fake) { a, b := f.next(), f.next(); f.speakBoth(a, b) },
	"speaks-both-late-and-legacy-first": func(f *fake) { a, b := f.next(), f.next(); f.speakBoth(b, a) },
	"discovers-once": func(f *fake) { // then is legacy on this connection, for a reason of its own
		asked := false
		f.serve(func(m *msg) bool {
			if m.Method == "server/discover" && asked {
				f.error(m.ID, -32601, "Method not found")
				return true
			}
			asked = asked || m.Method == "server/discover"
			return f.modern(m)
		})
	},
	"empty-discover": func(f *fake) {
		f.serve(func(m *msg) bool {
			if m.Method == "server/discover" {
				f.result(m.ID, `{}`)
				return true
			}
			return false
		})
	},
	"silent-about-levels": func(f *fake) { // its result says which level it read before the call
		level := ""
		f.serve(func(m *msg) bool {
			switch m.Method {
			case "logging/setLevel":
				level = m.Params.Level
			case "tools/call":
				f.result(m.ID, fmt.Sprintf(`{"level":%q}`, level))
			default:
				return false
			}
			return true
		})
	},
	"banner": func(f *fake) {
		f.say("Welcome to the fake server!\n\n   {not json}")
		f.serve(nil)
	},
	"once": func(f *fake) { // starts only once
		if _, err := os.Stat(os.Getenv("RECORD")); err == nil {
			os.Exit(4)
		}
		_ = os.WriteFile(os.Getenv("RECORD"), nil, 0o600)
		f.serve(f.call)
	},
	"grows": func(f *fake) {
		f.serve(f.grow(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
	},
	"grows-modern": func(f *fake) {
		grow := f.grow(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":3}}}`)
		f.serve(func(m *msg) bool { return f.modern(m) || grow(m) })
	},
	"deaf": func(f *fake) { // stops reading after it has been listed
		f.serve(func(m *msg) bool {
			if m.Method == "tools/list" {
				f.result(m.ID, `{"tools":[`+tool("echo")+`]}`)
				forever()
			}
			return false
		})
	},
	"stubborn": func(f *fake) { // ignores the end of its stdin and SIGTERM
		signal.Ignore(syscall.SIGTERM)
		f.serve(nil)
		forever()
	},
	"stubborn-calls": func(f *fake) {
		signal.Ignore(syscall.SIGTERM)
		f.serve(f.call)
		forever()
	},
	"bench": func(f *fake) {
		var size int
		_, _ = fmt.Sscan(os.Getenv("SIZE"), &size)
		result := `{"text":"` + strings.Repeat("x", size) + `"}`
		f.serve(func(m *msg) bool {
			if m.Method != "tools/call" {
				return false
			}
			f.result(m.ID, result)
			return true
		})
	},
	"talks": func(f *fake) {
		f.serve(func(m *msg) bool {
			if m.Method != "tools/call" {
				return false
			}
			fmt.Fprintf(os.Stderr, "token=%s and line-two-of-it\n\x1b[2J\n%s\n", os.Getenv("TOKEN"), strings.Repeat("y", 1<<17))
			fmt.Fprintf(os.Stderr, "%s%s\n", strings.Repeat("z", 64<<10-7), os.Getenv("TOKEN")) // the limit cuts it in the middle
			for i := range 10_000 {
				fmt.Fprintln(os.Stderr, "line", i)
			}
			f.result(m.ID, `{}`)
			return true
		})
	},
	"family": func(f *fake) { // has a grandchild in its group that outlives its stdin
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fakeEnv+"=hang")
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintf(os.Stderr, "grandchild %d\n", cmd.Process.Pid)
		f.serve(func(m *msg) bool {
			if m.Method == "tools/call" {
				f.result(m.ID, fmt.Sprintf(`{"pid":%d,"grandchild":%d}`, os.Getpid(), cmd.Process.Pid))
				return true
			}
			return false
		})
	},

	"clan": func(f *fake) { // has grandchildren that have left its group, and one of them is an orphan
		stray := exec.Command(os.Args[0])
		stray.Env = append(os.Environ(), fakeEnv+"=hang")
		system.LeadSession(stray)
		if err := stray.Start(); err != nil {
			panic(err)
		}
		parent := exec.Command(os.Args[0])
		parent.Env = append(os.Environ(), fakeEnv+"=deserter")
		orphan, err := parent.Output()
		if err != nil {
			panic(err)
		}
		f.serve(func(m *msg) bool {
			if m.Method != "tools/call" {
				return false
			}
			if m.Params.Arguments["do"] == "die" {
				os.Exit(9)
			}
			f.result(m.ID, fmt.Sprintf(`{"pid":%d,"stray":%d,"orphan":%s}`, os.Getpid(), stray.Process.Pid, bytes.TrimSpace(orphan)))
			return true
		})
	},
	"deserter": func(f *fake) {
		orphan := exec.Command(os.Args[0])
		orphan.Env = append(os.Environ(), fakeEnv+"=hang")
		system.LeadSession(orphan)
		if err := orphan.Start(); err != nil {
			panic(err)
		}
		f.say("%d", orphan.Process.Pid)
	},
	"ends-when-told": func(f *fake) { // records SIGTERM
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM)
		go func() {
			<-told
			_ = os.WriteFile(os.Getenv("RECORD"), nil, 0o600)
			os.Exit(0)
		}()
		f.serve(nil)
		forever()
	},

	// Servers for the tests of calls.
	"calls":        func(f *fake) { f.serve(f.call) },
	"calls-modern": func(f *fake) { f.serve(func(m *msg) bool { return f.modern(m) || f.call(m) }) },
	"list":         func(f *fake) { f.serve(f.list) },
	"inside":       func(f *fake) { f.serve(f.inside) },
}

func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

func (f *fake) flood(line string) {
	text := strings.Repeat(line+"\n", 100)
	for {
		_, _ = io.WriteString(f.out, text)
	}
}

// modern makes serve speak only 2026-07-28.
func (f *fake) modern(m *msg) bool {
	switch {
	case m.Method == "initialize":
		f.error(m.ID, -32601, "no such method")
	case m.ID != nil && !m.modern():
		f.error(m.ID, -32602, "no version in _meta")
	case m.Method == "server/discover":
		f.result(m.ID, modernHello)
	case m.Method == "subscriptions/listen":
		f.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID)
	default:
		return false
	}
	return true
}

// speakBoth serves both eras like the official SDK: initialize makes the connection legacy. It
// first answers the messages that were read before.
func (f *fake) speakBoth(before ...*msg) {
	legacy := false
	special := func(m *msg) bool {
		legacy = legacy || m.Method == "initialize"
		switch {
		case !legacy:
			return f.modern(m)
		case m.Method == "server/discover":
			f.error(m.ID, -32601, "Method not found")
			return true
		}
		return false
	}
	for _, m := range before {
		if !special(m) && m.Method == "initialize" {
			f.result(m.ID, legacyHello)
		}
	}
	f.serve(special)
}

// call does what the argument "do" says.
func (f *fake) call(m *msg) bool {
	if m.Method == "notifications/cancelled" {
		_ = os.WriteFile(os.Getenv("RECORD"), m.Raw, 0o600)
		return true
	}
	if m.Method != "tools/call" {
		return false
	}
	token := m.Params.Meta["progressToken"]
	switch m.Params.Arguments["do"] {
	case "die":
		os.Exit(9)
	case "never":
	case "flood-notifications":
		f.flood(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	case "flood-answers":
		f.flood(`{"jsonrpc":"2.0","id":123456,"result":{}}`)
	case "flood-requests":
		f.flood(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	case "wait":
		time.Sleep(300 * time.Millisecond)
		f.result(m.ID, `{}`)
	case "error":
		f.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1234567,"message":"token is %s","data":{"n":12345678901234567890}}}`, m.ID, os.Getenv("TOKEN"))
	case "fail", "work":
		f.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"token is %s"}], "isError" : %t, "n":1.0}}`,
			m.ID, os.Getenv("TOKEN"), m.Params.Arguments["do"] == "fail")
	case "wrong-ids":
		f.result(json.RawMessage("4711"), `{"wrong":1}`)
		f.result(json.RawMessage(fmt.Sprintf("%q", m.ID)), `{"wrong":2}`)
		f.say(`{"jsonrpc":"2.0","id":%s,"method":"x","result":{"wrong":3}}`, m.ID)
		f.result(m.ID, `{"right":1}`)
		f.result(m.ID, `{"wrong":4}`)
	case "ask":
		f.say(`{"jsonrpc":"2.0","id":"p1","method":"ping"}`)
		pong := f.next()
		f.say(`{"jsonrpc":"2.0","id":2.5e0,"method":"ping"}`) // not a valid id
		f.say(`{"jsonrpc":"2.0","id":77,"method":"sampling/createMessage","params":{}}`)
		refused := f.next()
		f.result(m.ID, fmt.Sprintf(`{"pong":%s,"refused":%s}`, pong.Raw, refused.Raw))
	case "progress":
		f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"nobody","progress":0}}`)
		for i := range 3000 {
			f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"x":1.0,"progressToken":%s,"progress":%d}}`, token, i)
		}
		f.result(m.ID, `{"done":true}`)
	case "log":
		for _, level := range []string{"debug", "info", "error"} {
			f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":%q,"data":{"a":1.0}}}`, level)
		}
		f.result(m.ID, `{}`)
	case "large":
		f.result(m.ID, `{"text":"`+strings.Repeat("x", frame.MaxMessage)+`"}`)
	case "indented":
		f.say(`  {"jsonrpc":"2.0", "id":%s, "result": {"text":"%s"} } `, m.ID, strings.Repeat("x", 100_000))
	case "no-object":
		f.result(m.ID, `[1]`)
	default:
		return false
	}
	return true
}

// grow changes the name of its only tool whenever a call says so, and announces it.
func (f *fake) grow(changed string) func(m *msg) bool {
	changes, lists := 0, 0
	return func(m *msg) bool {
		switch m.Method {
		case "tools/list":
			lists++
			f.result(m.ID, `{"tools":[`+tool(fmt.Sprintf("t-%d", changes))+`]}`)
		case "tools/call":
			for range int(m.Params.Arguments["times"].(float64)) {
				changes++
				f.say("%s", changed)
			}
			f.result(m.ID, fmt.Sprintf(`{"lists":%d}`, lists))
		default:
			return false
		}
		return true
	}
}

// list returns pages as the variable PAGES says.
func (f *fake) list(m *msg) bool {
	if m.Method != "tools/list" {
		return false
	}
	cursor := "none"
	if m.Params.Cursor != nil {
		cursor = *m.Params.Cursor
	}
	var n int
	_, _ = fmt.Sscan(cursor, &n)
	tools := `{"tools":[` + tool("t-"+cursor) + `]`
	switch os.Getenv("PAGES") {
	case "three":
		if n < 2 {
			tools += fmt.Sprintf(`,"nextCursor":"%d"`, n+1)
		}
	case "same":
		tools += `,"nextCursor":"again"`
	case "alternating":
		tools += fmt.Sprintf(`,"nextCursor":"%d"`, 1+n%2)
	case "always-new":
		tools += fmt.Sprintf(`,"nextCursor":"%d"`, n+1)
	case "empty":
		tools += `,"nextCursor":""`
	case "number":
		tools += `,"nextCursor":5`
	case "many":
		tools = `{"tools":[` + strings.Repeat(`{},`, link.MaxItems) + `{}]`
	case "large":
		tools = `{"tools":[{"x":"` + strings.Repeat("x", 12<<20) + fmt.Sprintf(`"}],"nextCursor":"%d"`, n+1)
	case "none":
		tools = `{"tool":[]`
	}
	f.result(m.ID, tools+"}")
	return true
}

// inside reports the environment and the open files of the child process.
func (f *fake) inside(m *msg) bool {
	if m.Method != "tools/call" {
		return false
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	var open []string
	for _, fd := range fds {
		// Files of the Go runtime: its poller, its read of the cgroup, and the folder that is being
		// listed.
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil || strings.HasPrefix(to, "anon_inode:") || strings.HasPrefix(to, "/proc/") || strings.HasPrefix(to, "/sys/") {
			continue
		}
		open = append(open, fd.Name())
	}
	text, _ := json.Marshal(map[string]any{
		"env": os.Environ(), "fds": open, "nonblock": system.IsNonblocking(0), "leader": system.LeadsGroup(), "pid": os.Getpid(),
		"ignores": signal.Ignored(syscall.SIGINT) || signal.Ignored(syscall.SIGQUIT),
	})
	f.result(m.ID, string(text))
	return true
}
