package served_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/shape"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A speller makes JSON as odd as it may be. What it makes is decided by its seed
// alone.
type speller struct {
	*rand.Rand
	lines bool // there may be line ends between the tokens
}

func (s *speller) pick(of ...string) string { return of[s.IntN(len(of))] }

func (s *speller) space() string {
	if s.IntN(4) > 0 {
		return ""
	}
	if s.lines {
		return s.pick(" ", "\t", "\n", "\r\n", "   ")
	}
	return s.pick(" ", "\t", "   ")
}

// text is what stands between the quotes of a string.
func (s *speller) text() string {
	var b strings.Builder
	for range s.IntN(6) {
		b.WriteString(s.pick("a", "Z9", "é", "é", "😀", "<&>", "\u2028", `\/`, `\\`, `\"`, `\n`, `\b\f\r\t`, `\u00e4`, `\u00E4`, `\ud83d\ude00`, `\u0000`, `\u005f`, "data: ", "id: 7"))
	}
	if s.IntN(200) == 0 {
		b.WriteString(strings.Repeat("long ", 20_000))
	}
	return b.String()
}

func (s *speller) number() string {
	switch s.IntN(3) {
	case 0:
		return s.pick("0", "-0", "1.0", "1e2", "1E+2", "1e-400", "9007199254740993", "12345678901234567890", "-0.0", "0.1000000000000000055511151231257827", "1e400")
	case 1:
		return strconv.FormatInt(s.Int64(), 10) + strconv.FormatInt(s.Int64(), 10)
	}
	return fmt.Sprintf("-%d.%d0", s.IntN(1000), s.IntN(1000))
}

// value makes a value at most so deep.
func (s *speller) value(depth int) string {
	n := s.IntN(8)
	if depth <= 0 {
		n %= 5
	}
	switch n {
	case 0:
		return s.pick("null", "true", "false")
	case 1, 2:
		return s.number()
	case 3, 4:
		return `"` + s.text() + `"`
	case 5:
		if s.IntN(20) == 0 {
			return strings.Repeat("[", depth) + s.space() + strings.Repeat("]", depth)
		}
		return s.list(s.values(s.IntN(4), depth-1)...)
	}
	return s.object(depth)
}

func (s *speller) values(n, depth int) (all []string) {
	for range n {
		all = append(all, s.value(depth))
	}
	return all
}

func (s *speller) list(elements ...string) string {
	for i, e := range elements {
		elements[i] = s.space() + e + s.space()
	}
	return "[" + s.space() + strings.Join(elements, ",") + "]"
}

// object makes an object of members whose names nobody knows, with the given
// ones, "name": value, among them.
func (s *speller) object(depth int, given ...string) string {
	for i := range s.IntN(4) {
		given = append(given, fmt.Sprintf(`"x%d%s"%s:%s%s`, i, s.text(), s.space(), s.space(), s.value(depth-1)))
	}
	s.Shuffle(len(given), func(i, k int) { given[i], given[k] = given[k], given[i] })
	for i, m := range given {
		given[i] = s.space() + m + s.space()
	}
	return "{" + s.space() + strings.Join(given, ",") + "}"
}

// content is one of tools/call, prompts/get or resources/read.
func (s *speller) content() string {
	return s.object(4, `"type":"`+s.pick("text", "image", "resource_link", "hologram")+`"`, `"text":"`+s.text()+`"`, `"annotations":`+s.object(2))
}

func (s *speller) contents() (all []string) {
	for range s.IntN(3) {
		all = append(all, s.content())
	}
	return all
}

// An errand is a kind of request that a server answers.
type errand struct {
	method, name string
	params       func(*speller) []string // members
	result       func(*speller) []string
}

var errands = []errand{
	{
		"tools/call", "odd",
		func(s *speller) []string { return []string{`"name":"odd"`, `"arguments":` + s.object(50)} },
		func(s *speller) []string {
			all := []string{`"structuredContent":` + s.value(50)}
			if s.IntN(4) > 0 {
				all = append(all, `"content":`+s.list(s.contents()...))
			}
			if s.IntN(4) == 0 {
				all = append(all, `"isError":`+s.pick("true", "false"))
			}
			return all
		},
	},
	{
		"resources/read", "odd://one",
		func(*speller) []string { return []string{`"uri":"odd://one"`} },
		func(s *speller) []string {
			return []string{`"contents":` + s.list(s.object(4, `"uri":"odd:\/\/one"`, `"text":"`+s.text()+`"`), s.object(4, `"uri":"odd://two"`, `"blob":""`))}
		},
	},
	{
		"prompts/get", "ask",
		func(s *speller) []string { return []string{`"name":"ask"`, `"arguments":` + s.object(2)} },
		func(s *speller) []string {
			return []string{`"description":"` + s.text() + `"`, `"messages":` + s.list(s.object(1, `"role":"user"`, `"content":`+s.content()))}
		},
	},
	{
		"completion/complete", "",
		func(s *speller) []string {
			return []string{`"ref":` + s.object(2, `"type":"ref/prompt"`, `"name":"ask"`), `"argument":` + s.object(2, `"name":"a"`, `"value":"`+s.text()+`"`)}
		},
		func(s *speller) []string {
			return []string{`"completion":` + s.object(3, `"values":`+s.list(`"`+s.text()+`"`), `"total":`+s.number(), `"hasMore":true`)}
		},
	},
}

// A member is one of an object, its value as spelt.
type member struct{ name, value string }

// membersOf reads an object with nothing of Switchboard's own.
func membersOf(t *testing.T, object []byte) (all []member) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		t.Errorf("no object: %v: %.300s", err, object)
		return nil
	}
	for d.More() {
		name, _ := d.Token()
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Errorf("%v: %.300s", err, object)
			return nil
		}
		all = append(all, member{name.(string), string(value)})
	}
	return all
}

// split takes the members that are rewritten out of all.
func split(all []member, rewritten ...string) (kept []member, out map[string]string) {
	out = map[string]string{}
	for _, m := range all {
		if slices.Contains(rewritten, m.name) {
			out[m.name] = m.value
		} else {
			kept = append(kept, m)
		}
	}
	return kept, out
}

// vendors are the members of a _meta that are neither the protocol's nor ours;
// "" is no _meta.
func vendors(t *testing.T, meta string) (all []member) {
	if meta == "" {
		return nil
	}
	for _, m := range membersOf(t, []byte(meta)) {
		if m.name != "progressToken" && !strings.HasPrefix(m.name, "io.modelcontextprotocol/") && !strings.HasPrefix(m.name, "io.switchboard/") {
			all = append(all, m)
		}
	}
	return all
}

// same compares what was sent with what came, but for the spelling of line ends
// between tokens, which lines and events cannot carry.
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	flat := strings.NewReplacer("\n", " ", "\r", " ")
	if g, w := flat.Replace(fmt.Sprint(got)), flat.Replace(fmt.Sprint(want)); g != w {
		t.Errorf("%s:\n got %.2000s\nwant %.2000s", what, g, w)
	}
}

// A probe is one request as the client spelt it, for when the tape is read.
type probe struct{ method, params string }

// Part 04 of the design names what is rewritten: ids, progress tokens, names,
// URIs, resultType, ttlMs, cacheScope, and of _meta what is the protocol's or
// ours.
func TestWhateverIsValidComesThroughToTheByteBothWays(t *testing.T) {
	t.Parallel()
	const requests = 24 // of each combination
	seed := law.Seed(t)
	tape := filepath.Join(t.TempDir(), "tape")
	list := &speller{Rand: rand.New(rand.NewPCG(seed, 0))}
	tools := []string{oddDefinition}
	for i := range 20 {
		tools = append(tools, list.object(6, fmt.Sprintf(`"name":"tool_%d"`, i), `"inputSchema":{"type":"object","properties":`+list.object(4)+`}`, `"description":"`+list.text()+`"`))
	}
	lists := map[string]string{
		"tools":             strings.Join(tools, ","),
		"resources":         list.object(4, `"uri":"odd://one"`, `"name":"one"`) + "," + list.object(4, `"uri":"odd://two"`, `"name":"two"`),
		"resourceTemplates": list.object(4, `"uriTemplate":"odd://{x}/y"`, `"name":"some"`),
		"prompts":           list.object(4, `"name":"ask"`, `"arguments":[`+list.object(2, `"name":"a"`)+`]`),
	}
	args, _ := json.Marshal(slices.Concat([]string{"tape=" + tape, "resources=" + lists["resources"], "resourceTemplates=" + lists["resourceTemplates"], "prompts=" + lists["prompts"]}, tools))
	rig.WriteFile(t, tape+".args", string(args))
	combination, read := uint64(0), 0
	behind(t, []string{"args=" + tape + ".args"}, func(t *testing.T, clientModern, serverModern bool, s rig.Session) {
		combination++
		random := rand.New(rand.NewPCG(seed, combination))
		_, lineIn := s.(*rig.StdioSession)
		asked := &speller{Rand: random, lines: !lineIn}
		answered := &speller{Rand: random, lines: strings.Contains(t.Name(), "/http_")}

		for name, want := range lists {
			method := map[string]string{"resourceTemplates": "resources/templates"}[name]
			if method == "" {
				method = name
			}
			m, _ := s.Ask(t, method+"/list", "")
			var got, all []json.RawMessage
			_ = json.Unmarshal([]byte(field(t, m.Result, name)), &got)
			_ = json.Unmarshal([]byte("["+want+"]"), &all)
			kind := map[string]switchboard.Kind{"tools": switchboard.Tools, "resources": switchboard.Resources, "resourceTemplates": switchboard.Templates, "prompts": switchboard.Prompts}[name]
			for i := range all { // definitions are cleaned, and get the form that every client can read, and else are as they were
				all[i], _ = scan.CleanJSON(all[i])
				repaired, _ := shape.Repair(kind, all[i])
				all[i] = repaired
			}
			got = slices.DeleteFunc(got, func(d json.RawMessage) bool { return bytes.HasPrefix(d, []byte(`{"name":"switchboard_read"`)) })
			among := func(list []json.RawMessage) func(json.RawMessage) bool {
				return func(d json.RawMessage) bool {
					return slices.ContainsFunc(list, func(o json.RawMessage) bool { return bytes.Equal(o, d) })
				}
			}
			odd, missing := slices.DeleteFunc(slices.Clone(got), among(all)), slices.DeleteFunc(slices.Clone(all), among(got))
			same(t, name, fmt.Sprintf("%d: %s", len(got), odd), fmt.Sprintf("%d: %s", len(all), missing))
		}

		sent := map[string]probe{}
		for i := range requests {
			e := errands[i%len(errands)]
			nonce := fmt.Sprintf("%s-%d", t.Name(), i)
			answer, isError := answered.answer(e, serverModern)
			params := asked.request(e, nonce, answer, clientModern)
			sent[nonce] = probe{e.method, params}
			m, _ := askRaw(t, s, e.method, e.name, params)
			came, _ := split(membersOf(t, m.Raw), "jsonrpc", "id")
			gave, _ := split(membersOf(t, []byte(answer)), "jsonrpc", "id")
			if len(came) != 1 || came[0].name != gave[0].name {
				t.Fatalf("%s: the server said %.500s\nand the client got %.1000s", params, answer, m.Raw)
			}
			if isError || !clientModern && !serverModern {
				same(t, e.method, came[0].value, gave[0].value)
			} else {
				sameResult(t, []byte(came[0].value), []byte(gave[0].value), clientModern, serverModern)
			}
		}
		read += reached(t, tape, read, sent, serverModern)
	}, func(dir string) { // some of them have characters that deceive
		rig.Admit(t, dir, "odd", switchboard.PinTool, tools...)
		rig.Admit(t, dir, "odd", switchboard.PinPrompt, lists["prompts"])
		rig.Admit(t, dir, "odd", switchboard.PinTemplate, lists["resourceTemplates"])
	})
}

// answer makes a message in which "@ID@" stands for the id.
func (s *speller) answer(e errand, modern bool) (message string, isError bool) {
	outcome := ""
	if isError = s.IntN(5) == 0; isError {
		outcome = `"error":` + s.space() + s.object(3, `"code":`+s.pick("1", "-1", "-32000", "-32099", "2147483647"), `"message":"`+s.text()+`"`, `"data":`+s.value(40))
	} else {
		members := e.result(s)
		if s.IntN(3) == 0 {
			members = append(members, `"_meta":`+s.object(4, `"com.example/a":`+s.value(3)))
		}
		if modern {
			members = append(members, `"resultType" : "complete"`)
			if s.IntN(2) == 0 {
				members = append(members, `"ttlMs":`+s.number(), `"cacheScope":"private"`)
			}
		}
		outcome = `"result":` + s.space() + s.object(30, members...)
	}
	envelope := []string{`"jsonrpc":"2.0"`, `"id" :"@ID@"`, outcome}
	s.Shuffle(len(envelope), func(i, k int) { envelope[i], envelope[k] = envelope[k], envelope[i] })
	return "{" + s.space() + strings.Join(envelope, s.space()+","+s.space()) + "}", isError
}

// request makes the params of a request that is to be answered so.
func (s *speller) request(e errand, nonce, answer string, modern bool) string {
	quoted, _ := json.Marshal(answer)
	members := append(e.params(s), fmt.Sprintf(`"zzNonce":%q`, nonce), `"zzAnswer":`+string(quoted))
	var meta []string
	if modern {
		own := strings.TrimSuffix(strings.TrimPrefix(rig.ModernMeta, `"_meta":{`), "}")
		meta = append(meta, own)
	}
	if s.IntN(2) == 0 {
		meta = append(meta, `"traceparent":"00-`+s.text()+`"`, `"com.example/a":`+s.value(3))
	}
	if s.IntN(3) == 0 {
		meta = append(meta, `"progressToken":`+s.pick(`"mine"`, `"\u00e4"`, "7", "9007199254740993"))
	}
	if meta != nil {
		members = append(members, `"_meta":`+s.object(2, meta...))
	}
	return s.object(5, members...)
}

// sameResult compares results where one side at least is modern.
func sameResult(t *testing.T, got, want []byte, clientModern, serverModern bool) {
	t.Helper()
	rewritten := []string{"_meta", "resultType"}
	if clientModern != serverModern {
		rewritten = append(rewritten, "ttlMs", "cacheScope")
	}
	came, ours := split(membersOf(t, got), rewritten...)
	gave, theirs := split(membersOf(t, want), rewritten...)
	same(t, "the result", came, gave)
	same(t, "the result's _meta", vendors(t, ours["_meta"]), vendors(t, theirs["_meta"]))
	kind := map[bool]string{true: `"complete"`}[clientModern]
	same(t, "resultType", ours["resultType"], kind)
	if clientModern != strings.Contains(ours["_meta"], `"io.modelcontextprotocol/serverInfo":{"name":"switchboard"`) {
		t.Errorf("a modern client, and no other, is told who answers: %.500s", ours["_meta"])
	}
	if !clientModern && ours["ttlMs"]+ours["cacheScope"] != "" {
		t.Errorf("a legacy client gets %v", ours)
	}
}

// reached compares what was sent with what the tape has after what was read, and
// returns how long that is.
func reached(t *testing.T, tape string, read int, sent map[string]probe, modern bool) int {
	t.Helper()
	text, err := os.ReadFile(tape)
	if err != nil {
		t.Fatal(err)
	}
	text = text[read:]
	found := 0
	for line := range strings.Lines(string(text)) {
		line, err := strconv.Unquote(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		_, message := split(membersOf(t, []byte(line)), "method", "params")
		if message["params"] == "" {
			continue
		}
		all := membersOf(t, []byte(message["params"]))
		_, own := split(all, "zzNonce")
		p, ok := sent[strings.Trim(own["zzNonce"], `"`)]
		if !ok {
			continue
		}
		found++
		same(t, "method", message["method"], strconv.Quote(p.method))
		came, after := split(all, "_meta")
		gave, before := split(membersOf(t, []byte(p.params)), "_meta")
		same(t, "the params", came, gave)
		same(t, "the params' _meta", vendors(t, after["_meta"]), vendors(t, before["_meta"]))
		_, of := split(membersOf(t, []byte(after["_meta"]+strings.Repeat("{}", 1-min(1, len(after["_meta"]))))), "progressToken")
		if wanted := strings.Contains(before["_meta"], `"progressToken":`); wanted != (of["progressToken"] != "") {
			t.Errorf("progress is asked for: %s, as the client did: %s", after["_meta"], before["_meta"])
		}
		if modern != strings.Contains(after["_meta"], `"io.modelcontextprotocol/clientInfo":{"name":"switchboard"`) {
			t.Errorf("a modern server, and no other, is told who asks: %s", after["_meta"])
		}
		if !modern && !strings.Contains(before["_meta"], "progressToken") && !strings.Contains(before["_meta"], "io.modelcontextprotocol") {
			same(t, "params to the byte", message["params"], p.params)
		}
	}
	if found != len(sent) {
		t.Errorf("%d of %d requests reached the server", found, len(sent))
	}
	return len(text)
}
