package served_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A way is one way in which a server changes a definition.
type way struct {
	kind     switchboard.PinKind
	what     string
	old, new string // the first old in the definition becomes new
	want     string // the state and the class; "" if it is no change
	base     string // the definition; "" means that of the kind. NAME in it is unique
}

// baseDefinitions have each member that can change.
var baseDefinitions = map[switchboard.PinKind]string{
	switchboard.PinTool: `{"name":"NAME","title":"T","description":"Does it.","icons":[{"src":"https://example.com/a.png"}],` +
		`"inputSchema":{"type":"object","properties":{"a":{"type":"string","title":"A","description":"what","examples":["x"],"default":"v"},"b":{"type":"string","enum":["p","q"]},"c":{"type":"integer","minimum":1}},"required":["b"]},` +
		`"annotations":{"title":"A","readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false},` +
		`"_meta":{"note":"n","x-summit-capabilities":[{"verb":"search","resource":"internet","constraints":["readonly"]}]}}`,
	switchboard.PinPrompt: `{"name":"NAME","title":"T","description":"Asks it.","icons":[{"src":"https://example.com/a.png"}],"arguments":[{"name":"a","description":"what","required":true},{"name":"b"}],"_meta":{"note":"n"}}`,
	switchboard.PinTemplate: `{"uriTemplate":"ways://NAME/{path}","name":"n","title":"T","description":"Has it.","mimeType":"text/plain","icons":[{"src":"https://example.com/a.png"}],` +
		`"annotations":{"audience":["user"],"priority":0.5},"_meta":{"note":"n"}}`,
}

const (
	frozenWords       = "active frozen words"
	frozenWider       = "active frozen wider"
	suspendedNarrower = "suspended narrower"
	suspendedFreer    = "suspended freer"
)

// waysToChange are the ways. Each changes one member.
func waysToChange() (all []way) {
	const output = `"outputSchema":{"type":"object","description":"the result","properties":{"r":{"type":"string"},"s":{"type":"string"}},"required":["r"]},`
	promising := strings.Replace(baseDefinitions[switchboard.PinTool], `"annotations"`, output+`"annotations"`, 1)
	const capability = `{"verb":"search","resource":"internet","constraints":["readonly"]}`
	for _, w := range []way{
		{"", "title", `"title":"T"`, `"title":"EVIL"`, frozenWords, ""},
		{"", "description", `Does it.`, `Does EVIL.`, frozenWords, ""},
		{"", "no description", `"description":"Does it.",`, ``, frozenWords, ""},
		{"", "icons", `a.png`, `evil.png`, frozenWords, ""},
		{"", "_meta", `"note":"n"`, `"note":"EVIL"`, frozenWords, ""},
		{"", "title in annotations", `"title":"A","readOnly`, `"title":"EVIL","readOnly`, frozenWords, ""},
		{"", "title of an argument", `"title":"A","desc`, `"title":"EVIL","desc`, frozenWords, ""},
		{"", "description of an argument", `"what"`, `"EVIL"`, frozenWords, ""},
		{"", "examples", `["x"]`, `["EVIL"]`, frozenWords, ""},
		{"", "comment", `"inputSchema":{`, `"inputSchema":{"$comment":"EVIL",`, frozenWords, ""},
		{"", "description of the result", `"the result"`, `"EVIL"`, frozenWords, promising},
		{"", "order of members", `"title":"T","description":"Does it.",`, `"description":"Does it.","title":"T",`, "", ""},
		{"", "spaces", `"title":"T",`, `"title" : "T" , `, "", ""},
		{"", "a hint that promises more", `"readOnlyHint":false`, `"readOnlyHint":true`, frozenWords, ""},
		{"", "one more optional argument", `"c":{`, `"evil":{},"c":{`, frozenWider, ""},
		{"", "one more value", `"q"]`, `"q","EVIL"]`, frozenWider, ""},
		{"", "a lower minimum", `"minimum":1`, `"minimum":0`, frozenWider, ""},
		{"", "no minimum", `,"minimum":1`, ``, frozenWider, ""},
		{"", "one more type", `"type":"integer"`, `"type":["integer","null"]`, frozenWider, ""},
		{"", "an argument that is not required any more", `,"required":["b"]`, ``, frozenWider, ""},
		{"", "a result that promises more", `"required":["r"]`, `"required":["r","s"]`, frozenWider, promising},
		{"", "one more required argument", `"required":["b"]`, `"required":["b","a"]`, suspendedNarrower, ""},
		{"", "a new argument that is required", `"c":{"type":"integer","minimum":1}},"required":["b"]`, `"c":{"type":"integer","minimum":1},"evil":{}},"required":["b","evil"]`, suspendedNarrower, ""},
		{"", "one value less", `,"q"]`, `]`, suspendedNarrower, ""},
		{"", "a higher minimum", `"minimum":1`, `"minimum":2`, suspendedNarrower, ""},
		{"", "another type", `"type":"integer"`, `"type":"boolean"`, suspendedNarrower, ""},
		{"", "a pattern", `"examples"`, `"pattern":"EVIL","examples"`, suspendedNarrower, ""},
		{"", "another default", `"default":"v"`, `"default":"EVIL"`, suspendedNarrower, ""},
		{"", "no default", `,"default":"v"`, ``, suspendedNarrower, ""},
		{"", "a new default", `"enum":["p","q"]`, `"enum":["p","q"],"default":"p"`, suspendedNarrower, ""},
		{"", "an argument of which nothing is said any more", `,"c":{"type":"integer","minimum":1}`, ``, frozenWider, ""},
		{"", "an argument that is not taken any more", `,"c":{"type":"integer","minimum":1}},`, `},"additionalProperties":false,`, suspendedNarrower, ""},
		{"", "a result that promises less", `"required":["r"]`, `"required":[]`, suspendedNarrower, promising},
		{"", "another type of a result", `"r":{"type":"string"}`, `"r":{"type":"number"}`, suspendedNarrower, promising},
		{"", "a result without a promise", output, ``, suspendedNarrower, promising},
		{"", "a promise about the result", `"annotations"`, output + `"annotations"`, frozenWider, ""},
		{"", "an unknown member", `"title":"T"`, `"evil":1,"title":"T"`, suspendedNarrower, ""},
		{"", "it destroys", `"destructiveHint":false`, `"destructiveHint":true`, suspendedFreer, ""},
		{"", "it reaches further", `"openWorldHint":false`, `"openWorldHint":true`, suspendedFreer, ""},
		{"", "it cannot be repeated", `"idempotentHint":true`, `"idempotentHint":false`, suspendedFreer, ""},
		{"", "it only reads no longer", `"readOnlyHint":true`, `"readOnlyHint":false`, suspendedFreer, strings.Replace(baseDefinitions[switchboard.PinTool], `"readOnlyHint":false`, `"readOnlyHint":true`, 1)},
		{"", "no hint about destruction", `"destructiveHint":false,`, ``, suspendedFreer, ""},
		{"", "one more capability", capability, capability + `,{"verb":"read","resource":"internet"}`, suspendedFreer, ""},
		{"", "a capability without its constraint", `"constraints":["readonly"]`, `"constraints":[]`, suspendedFreer, ""},
		{"", "deceptive characters", `Does it.`, "Does \u202eit.", "suspended poisoned", ""},
		{"", "another name", `"name":"NAME"`, `"name":"NAME-renamed"`, "testing", ""},
		{switchboard.PinPrompt, "title", `"title":"T"`, `"title":"EVIL"`, frozenWords, ""},
		{switchboard.PinPrompt, "description", `Asks it.`, `Asks EVIL.`, frozenWords, ""},
		{switchboard.PinPrompt, "icons", `a.png`, `evil.png`, frozenWords, ""},
		{switchboard.PinPrompt, "_meta", `"note":"n"`, `"note":"EVIL"`, frozenWords, ""},
		{switchboard.PinPrompt, "description of an argument", `"what"`, `"EVIL"`, frozenWords, ""},
		{switchboard.PinPrompt, "one more optional argument", `{"name":"b"}`, `{"name":"b"},{"name":"evil"}`, frozenWider, ""},
		{switchboard.PinPrompt, "an argument that is not required any more", `,"required":true`, ``, frozenWider, ""},
		{switchboard.PinPrompt, "a required argument", `{"name":"b"}`, `{"name":"b","required":true}`, suspendedNarrower, ""},
		{switchboard.PinPrompt, "an argument that is gone", `,{"name":"b"}`, ``, suspendedNarrower, ""},
		{switchboard.PinPrompt, "order of arguments", `{"name":"a","description":"what","required":true},{"name":"b"}`, `{"name":"b"},{"name":"a","description":"what","required":true}`, suspendedNarrower, ""},
		{switchboard.PinPrompt, "an unknown member", `"title":"T"`, `"evil":1,"title":"T"`, suspendedNarrower, ""},
		{switchboard.PinPrompt, "deceptive characters", `Asks it.`, "Asks \u202eit.", "suspended poisoned", ""},
		{switchboard.PinPrompt, "another name", `"name":"NAME"`, `"name":"NAME-renamed"`, "testing", ""},
		{switchboard.PinTemplate, "name", `"name":"n"`, `"name":"EVIL"`, frozenWords, ""},
		{switchboard.PinTemplate, "description", `Has it.`, `Has EVIL.`, frozenWords, ""},
		{switchboard.PinTemplate, "annotations", `0.5`, `0.9`, frozenWords, ""},
		{switchboard.PinTemplate, "order of members", `"name":"n","title":"T"`, `"title":"T","name":"n"`, "", ""},
		{switchboard.PinTemplate, "type of the content", `text/plain`, `text/evil`, suspendedNarrower, ""},
		{switchboard.PinTemplate, "an unknown member", `"title":"T"`, `"evil":1,"title":"T"`, suspendedNarrower, ""},
		{switchboard.PinTemplate, "another URI", `ways://NAME/`, `ways://NAME-renamed/`, "testing", ""},
	} {
		if w.kind == "" {
			w.kind = switchboard.PinTool
		}
		if w.base == "" {
			w.base = baseDefinitions[w.kind]
		}
		all = append(all, w)
	}
	return all
}

// A wayServer is a server that can change each of its definitions in another way.
type wayServer struct {
	id           string
	before, then []string // the arguments of fakeserver.New
	file         string   // has then
	fake         *fakeserver.Server
	want         map[string]string // by kind and name: the state and the class after the change
}

// newWayServer returns a server whose definitions have the id in their names.
func newWayServer(t *testing.T, dir, id string, ways []way) *wayServer {
	t.Helper()
	s := &wayServer{id: id, want: map[string]string{}, file: filepath.Join(dir, id+".json")}
	lists := map[switchboard.PinKind]string{switchboard.PinPrompt: "prompts", switchboard.PinTemplate: "resourceTemplates"}
	others := [2]map[switchboard.PinKind][]string{{}, {}}
	for i, w := range ways {
		name := fmt.Sprintf("way-%d-%s", i, id)
		before := strings.ReplaceAll(w.base, "NAME", name)
		then := strings.Replace(before, strings.ReplaceAll(w.old, "NAME", name), strings.ReplaceAll(w.new, "NAME", name), 1)
		if before == then {
			t.Fatalf("%s %s changes nothing", w.kind, w.what)
		}
		if w.kind == switchboard.PinTemplate {
			name = "ways://" + name + "/{path}"
		}
		if w.want == "testing" {
			s.want[string(w.kind)+" "+name] = "gone"
			name = strings.Replace(name, id, id+"-renamed", 1)
		}
		s.want[string(w.kind)+" "+name] = w.want
		if w.kind == switchboard.PinTool {
			s.before, s.then = append(s.before, before), append(s.then, then)
			continue
		}
		others[0][w.kind], others[1][w.kind] = append(others[0][w.kind], before), append(others[1][w.kind], then)
	}
	turn := fmt.Sprintf(rig.Tool, "turn-"+id)
	s.before, s.then = append(s.before, turn, "instructions=Ask "+id+"."), append(s.then, turn, "instructions=Ask EVIL.")
	for kind, list := range lists {
		s.before, s.then = append(s.before, list+"="+strings.Join(others[0][kind], ",")), append(s.then, list+"="+strings.Join(others[1][kind], ","))
	}
	s.write(t, s.file+".before", s.before)
	s.write(t, s.file+".then", s.then)
	return s
}

func (s *wayServer) write(t *testing.T, file string, args []string) {
	t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	rig.WriteFile(t, file, string(text))
}

// newWayServers returns servers on the transports, each written as TRANSPORT-ERA, and the folder of a Switchboard in front of them. settings are more lines of its
// switchboard.yaml.
func newWayServers(t *testing.T, settings string, transports ...string) (servers []*wayServer, dir string) {
	t.Helper()
	offers := t.TempDir()
	var rows []string
	for _, id := range transports {
		s := newWayServer(t, offers, id, waysToChange())
		servers = append(servers, s)
		transport, era, _ := strings.Cut(id, "-")
		args := []string{"args=" + s.file + ".before"}
		if era == "modern" {
			args = append(args, "modern")
		}
		if transport == "stdio" {
			rows = append(rows, rig.FakeRow(s.id, append(args, "become="+s.file)...))
			continue
		}
		s.fake = fakeserver.New(args)
		var handler http.Handler = s.fake
		if transport == "sse" {
			handler = &fakeserver.SSEServer{Server: s.fake}
		}
		web := httptest.NewServer(handler)
		t.Cleanup(func() {
			web.CloseClientConnections()
			web.Close()
		})
		rows = append(rows, fmt.Sprintf("%s: {transport: http, url: %s/mcp}", s.id, web.URL))
	}
	return servers, rig.LayOut(t, strings.NewReplacer("start_deadline: 30s", "start_deadline: 30s\ntoken_budget: 1000000\n"+settings, "allow: [by_name]", "allow: [by_name], token_budget: 1000000", "task_id: all", "task_id: all\ntoken_budget: 1000000").Replace(rig.Fakes(rows...)))
}

// watch returns what clients of the gateways see at first: one of each era at each.
func watch(t *testing.T, servers []*wayServer, gateways ...*rig.Gateway) *watchedLists {
	t.Helper()
	w := &watchedLists{}
	for _, g := range gateways {
		w.sessions = append(w.sessions, g.Open(t, "/mcp", false), g.Open(t, "/mcp", true))
	}
	w.look(t)
	if w.admitted = w.take(); len(w.admitted) < len(waysToChange())*len(servers) {
		t.Fatalf("at first, clients see %d definitions", len(w.admitted))
	}
	return w
}

// become lets a server offer what the file says, by a call of the client.
func (s *wayServer) become(t *testing.T, client rig.Session, file string) {
	t.Helper()
	client.Ask(t, "tools/call", fmt.Sprintf(`{"name":"turn-%s","arguments":{"do":"become","bytes":%q}}`, s.id, file))
}

// onceBack are the states of a server that offers its first definitions again.
func (s *wayServer) onceBack() map[string]string {
	gone := map[string]string{}
	for name, state := range s.want {
		if state == "testing" {
			gone[name] = "testing gone"
		}
	}
	return gone
}

// Servers of both eras on all transports change their definitions in all ways: with list_changed, and unseen, while Switchboard is away. No client of either era, and none on
// stdio, ever gets a definition that it did not get at first, and each change has its class.
func TestNoClientSeesAByteThatWasNotAdmittedHoweverItChanges(t *testing.T) {
	t.Parallel()
	servers, dir := newWayServers(t, "", "stdio-legacy", "stdio-modern", "http-legacy", "http-modern", "sse-legacy")
	g := rig.Serve(t, dir)
	w := watch(t, servers, g)
	awaitStates := func(what string, want func(s *wayServer) map[string]string) {
		t.Helper()
		for _, s := range servers {
			rig.Eventually(t, s.id+": "+what, func() string {
				w.look(t)
				return differences(statesOf(t, g, s.id), want(s))
			})
		}
	}

	// With notifications, while other clients list without a pause.
	busy := w.listAlways(t, g)
	for _, s := range servers {
		s.become(t, w.sessions[0], s.file+".then")
	}
	awaitStates("each change has its class", func(s *wayServer) map[string]string { return s.want })
	checkCalls(t, w.sessions, servers, "", "SB-LIFE-001", "SB-")
	for _, s := range servers {
		s.become(t, w.sessions[0], s.file+".before")
	}
	awaitStates("all ends when the admitted definitions are offered again", (*wayServer).onceBack)
	busy()

	// Without notifications, while Switchboard is away; then on stdio.
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	for _, s := range servers {
		if s.fake == nil {
			s.write(t, s.file, s.then)
		} else {
			s.fake.Become(s.file + ".then")
		}
	}
	g = rig.ServeAtOnce(t, dir)
	w.sessions = []rig.Session{g.OpenAtOnce(t, "/mcp", false), g.OpenAtOnce(t, "/mcp", true)}
	awaitStates("after a reconnect each change has its class", func(s *wayServer) map[string]string {
		s.want["instructions "] = frozenWords // which servers give at the beginning alone
		return s.want
	})
	for _, modern := range []bool{false, true} {
		told := instructionsOf(t, g, modern)
		for _, s := range servers {
			if !strings.Contains(told, "Ask "+s.id+".") || strings.Contains(told, "EVIL") {
				t.Errorf("a client is told %q, want the admitted instructions of %s", told, s.id)
			}
		}
	}
	checkCalls(t, w.sessions, servers, "", "SB-", "SB-") // a client that lists only after the server is back was never shown what is suspended
	for _, modern := range []bool{false, true} {
		w.sessions = []rig.Session{rig.StdioAtOnce(t, dir, modern)}
		w.look(t)
	}
}

// statesOf returns the states and classes of the definitions of a server that are not plainly active, by kind and name.
func statesOf(t *testing.T, g *rig.Gateway, id string) map[string]string {
	t.Helper()
	var list struct {
		Pins []struct {
			Kind, Name, State, Class, Gone string
			Frozen                         bool
		}
	}
	a := g.AskAdmin(t, "", http.MethodGet, "/v1/pins?changed=true&limit=500&server="+id, "")
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil {
		t.Fatalf("%v: %s", err, a.Body)
	}
	all := map[string]string{}
	for _, p := range list.Pins {
		words := []string{p.State, p.Class}
		if p.Frozen {
			words = []string{p.State, "frozen", p.Class}
		}
		state := strings.TrimSpace(strings.Join(words, " "))
		switch {
		case p.Gone != "" && p.State == "active":
			state = "gone"
		case p.Gone != "":
			state += " gone"
		}
		all[p.Kind+" "+p.Name] = state
	}
	return all
}

// differences says which states are others than wanted. "" is plainly active.
func differences(got, want map[string]string) string {
	var all []string
	for name, state := range want {
		if got[name] != state {
			all = append(all, fmt.Sprintf("%s is %q, want %q", name, got[name], state))
		}
	}
	for name, state := range got {
		if _, known := want[name]; !known {
			all = append(all, fmt.Sprintf("%s is %q", name, state))
		}
	}
	return strings.Join(all, "\n")
}

// watchedLists compare what clients see with what they saw at first.
type watchedLists struct {
	sessions []rig.Session
	admitted map[string]bool // the bytes of each definition; nil before they are known

	mu   sync.Mutex
	seen map[string]bool
}

// look lists everything as each client.
func (w *watchedLists) look(t *testing.T) {
	t.Helper()
	for _, s := range w.sessions {
		w.list(t, s)
	}
}

func (w *watchedLists) list(t *testing.T, s rig.Session) {
	t.Helper()
	for _, method := range []string{"tools/list", "prompts/list", "resources/templates/list"} {
		m, _ := s.Ask(t, method, "")
		var lists struct{ Tools, Prompts, ResourceTemplates []json.RawMessage }
		if err := json.Unmarshal(m.Result, &lists); err != nil {
			t.Errorf("%s: %v: %s", method, err, m.Raw)
			return
		}
		w.mu.Lock()
		for _, list := range [][]json.RawMessage{lists.Tools, lists.Prompts, lists.ResourceTemplates} {
			for _, definition := range list {
				text := string(definition)
				if w.seen == nil {
					w.seen = map[string]bool{}
				}
				if w.seen[text] = true; w.admitted != nil && !w.admitted[text] && strings.Contains(text, "way-") {
					t.Errorf("a client sees what was not admitted: %s", text)
					w.admitted[text] = true // said once
				}
			}
		}
		w.mu.Unlock()
	}
}

// take returns the definitions that clients have seen.
func (w *watchedLists) take() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

// listAlways lists as two more clients until stop is called.
func (w *watchedLists) listAlways(t *testing.T, g *rig.Gateway) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var clients sync.WaitGroup
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					w.list(t, s)
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(done)
		clients.Wait()
	})
}

// checkCalls calls two tools whose changes freeze by default, one that is suspended, one that is not there any more, and one that has not changed, of each server. The calls are
// refused with these codes; "" means that they are answered.
func checkCalls(t *testing.T, clients []rig.Session, servers []*wayServer, frozen, suspended, gone string) {
	t.Helper()
	for _, s := range servers {
		for _, tt := range []struct {
			tool, code string
		}{{"way-0", frozen}, {"way-14", frozen}, {"way-21", suspended}, {"way-45", gone}, {"turn", ""}} {
			for _, c := range clients {
				m, _ := c.Ask(t, "tools/call", fmt.Sprintf(`{"name":"%s-%s","arguments":{"b":"p"}}`, tt.tool, s.id))
				if text := string(m.Raw); tt.code != "" && !strings.Contains(text, tt.code) || tt.code == "" && (!strings.Contains(text, `"content"`) || strings.Contains(text, "SB-")) {
					t.Errorf("%s of %s is answered %.300s, want %q", tt.tool, s.id, text, tt.code)
				}
			}
		}
	}
	if ways := waysToChange(); ways[0].want != frozenWords || ways[14].want != frozenWider || ways[21].want != suspendedNarrower || ways[45].want != "testing" {
		t.Error("the numbers of the ways are not right any more")
	}
}

// With changed: suspend, each change suspends until the admitted definition is offered again, whatever it means (TP-01).
func TestEachChangeSuspendsWhereTheOperatorSaysSo(t *testing.T) {
	t.Parallel()
	servers, dir := newWayServers(t, "admission: {changed: suspend}", "http-legacy", "stdio-modern")
	g := rig.Serve(t, dir)
	w := watch(t, servers, g)
	awaitStates := func(what string, want func(s *wayServer) map[string]string) {
		t.Helper()
		for _, s := range servers {
			rig.Eventually(t, s.id+": "+what, func() string {
				w.look(t)
				return differences(statesOf(t, g, s.id), want(s))
			})
		}
	}
	for _, s := range servers {
		s.become(t, w.sessions[0], s.file+".then")
	}
	awaitStates("each change suspends", func(s *wayServer) map[string]string {
		want := map[string]string{}
		for name, state := range s.want {
			want[name] = strings.Replace(state, "active frozen", "suspended", 1)
		}
		return want
	})
	checkCalls(t, w.sessions, servers, "SB-LIFE-001", "SB-LIFE-001", "SB-")
	for _, s := range servers {
		s.become(t, w.sessions[0], s.file+".before")
	}
	awaitStates("all ends when the admitted definitions are offered again", (*wayServer).onceBack)
}

// Two replicas have a server of their own, and one of the two changes its definitions in all ways. The other replica freezes and suspends the same within a second, no client
// of either sees a byte of it, and one of the two writes the receipt.
func TestAServerThatChangesTowardsOneReplicaIsTheSameAtTheOther(t *testing.T) {
	t.Parallel()
	servers, dir := newWayServers(t, "", "stdio-modern")
	s := servers[0]
	replicas, _ := replicate(t, dir, 2)
	w := watch(t, servers, replicas...)
	agree := func(what string, want map[string]string) (took time.Duration) {
		t.Helper()
		var began time.Time
		for _, g := range replicas { // the first one is offered it
			rig.Eventually(t, what, func() string {
				w.look(t)
				return differences(statesOf(t, g, s.id), want)
			})
			if began.IsZero() {
				began = time.Now()
			}
		}
		return time.Since(began)
	}
	both := maps.Clone(s.want)
	maps.DeleteFunc(both, func(_, state string) bool { return state == "gone" }) // the other one is offered it
	best := time.Hour                                                            // a busy machine may delay one, so one of a few counts
	changes := len(w.admitted)
	for round := 0; round < 5 && best > time.Second; round++ {
		s.become(t, w.sessions[0], s.file+".then")
		best = min(best, agree("each change has its class", both))
		checkCalls(t, w.sessions[:2], servers, "", "SB-LIFE-001", "SB-")
		checkCalls(t, w.sessions[2:], servers, "", "SB-LIFE-001", "") // it has the tool that the other one does not have any more
		s.become(t, w.sessions[0], s.file+".before")
		best = min(best, agree("all ends", s.onceBack()))
		changes += 2 * len(both)
	}
	if best > time.Second {
		t.Errorf("the other replica agrees after %s", best)
	}
	rig.StopTogether(replicas) // which write their receipts at once
	for _, g := range replicas {
		g.AwaitEnd(t)
	}
	out, errs, code := rig.Command(t, replicas[0].Dir, "receipts", "list", "--kind", "pin", "--json")
	written := 0
	for line := range strings.Lines(out) {
		var r struct {
			Entry struct {
				Receipt struct{ Pins struct{ Changes int } }
			}
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		written += r.Entry.Receipt.Pins.Changes
	}
	if code != 0 || written < changes-len(both)/2 || written > changes+len(both)/2 { // some tools come and go
		t.Errorf("exit %d: the receipts have %d changes, want about %d: %s%s", code, written, changes, out, errs)
	}
	t.Logf("the other replica agrees after %s; %d changes, receipts of %d", best, changes, written)
}
