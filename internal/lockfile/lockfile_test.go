package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	digest = "d1:" + strings.Repeat("0123456789abcdef", 4)
	noon   = time.Date(2026, 5, 3, 12, 0, 0, 0, time.UTC)
)

// pinOf returns an active pin of a tool.
func pinOf(server switchboard.ServerID, tool string) switchboard.AdmittedPin {
	return switchboard.AdmittedPin{PinID: switchboard.PinID{Server: server, Kind: switchboard.PinTool, Name: tool}, Digest: digest, State: switchboard.LifeActive, By: "ann", At: noon}
}

// example is a file with each kind of line. D stands for a digest.
var example = strings.ReplaceAll(`# ours

# what brave says
brave instructions active ann 2026-05-03T12:00:00Z D
brave prompt "write a summary" active ann 2026-05-03T12:00:00Z D
brave template file:///{path} testing ann 2026-05-03T12:00:00Z D
brave/find deprecated "Ann of acme" 2026-05-03T12:00:00Z D successor brave/search
brave/search active ann 2026-05-03T12:00:00Z D

# the name has a Cyrillic letter
"brave/s\u0435arch" suspended ann 2026-05-03T12:00:00Z D
brave-2/search retired ann 2026-05-03T12:00:00Z D successor brave/search
end
`, "D", digest)

func TestEachLineIsAPin(t *testing.T) {
	got, err := Read(Name, []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	want := map[switchboard.PinID]switchboard.AdmittedPin{}
	add := func(p switchboard.AdmittedPin, change func(p *switchboard.AdmittedPin)) {
		change(&p)
		want[p.PinID] = p
	}
	add(pinOf("brave", ""), func(p *switchboard.AdmittedPin) { p.Kind = switchboard.PinInstructions })
	add(pinOf("brave", "write a summary"), func(p *switchboard.AdmittedPin) { p.Kind = switchboard.PinPrompt })
	add(pinOf("brave", "file:///{path}"), func(p *switchboard.AdmittedPin) { p.Kind, p.State = switchboard.PinTemplate, switchboard.LifeTesting })
	add(pinOf("brave", "find"), func(p *switchboard.AdmittedPin) {
		p.State, p.By, p.Successor = switchboard.LifeDeprecated, "Ann of acme", "brave/search"
	})
	add(pinOf("brave", "search"), func(*switchboard.AdmittedPin) {})
	add(pinOf("brave", "s\u0435arch"), func(p *switchboard.AdmittedPin) { p.State = switchboard.LifeSuspended })
	add(pinOf("brave-2", "search"), func(p *switchboard.AdmittedPin) { p.State, p.Successor = switchboard.LifeRetired, "brave/search" })
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if line := Places([]byte(example))[pinOf("brave", "search").PinID]; line != 8 {
		t.Errorf("brave/search is at line %d, want 8", line)
	}
}

// Windows writes other line ends, and a person who writes the last line may leave out its end.
func TestLineEndsAreFree(t *testing.T) {
	want, err := Read(Name, []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{strings.ReplaceAll(example, "\n", "\r\n"), strings.TrimSuffix(example, "\n"), example + "\n"} {
		if got, err := Read(Name, []byte(text)); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestAFileWithAMistakeIsRefusedAtItsPlace(t *testing.T) {
	const search = "brave/search active ann 2026-05-03T12:00:00Z "
	for _, tt := range []struct{ name, old, new, want string }{
		{"an unknown scheme", search + "d1:", search + "d9:", `8:46: "d9" is no scheme of digests that this Switchboard knows; it knows d1 and d2. A newer one may have written the file`},
		{"a digest without a scheme", search + "d1:", search, `8:46: "0123`},
		{"a short digest", search + "d1:0", search + "d1:", `8:46: "d1:123456789abcdef`},
		{"a member left out twice", search + digest, search + "d2:build,build:" + digest[3:], `8:46: "d2:build,build:0`},
		{"a block left out", search + digest, search + "d2:x-summit-capabilities:" + digest[3:], `8:46: "d2:x-summit-capabilities:`},
		{"capital letters", search + digest, search + "d1:" + strings.ToUpper(digest[3:]), `8:46: "d1:0123456789ABCDEF`},
		{"one pin twice", search + digest, search + digest + "\n" + search + digest, "9:1: brave/search stands here twice, first at line 8; remove one of the two"},
		{"not sorted", search + digest, search + digest + "\nbrave/read" + search[len("brave/search"):] + digest, "9:1: brave/read must stand before brave/search, at line 8"},
		{"an unknown state", "brave/search active", "brave/search actve", `8:14: "actve" is no state; did you mean "active"?`},
		{"the state of what no person has let in", "brave/search active", "brave/search new", `8:14: "new" is no state`},
		{"a successor without a server", "successor brave/search\nbrave/search", "successor search\nbrave/search", `7:126: the successor "search" is not of the form SERVER/TOOL`},
		{"a successor of an active tool", search + digest, search + digest + " successor brave/find", "8:114: only a tool that is deprecated or retired has a successor"},
		{"a tool that is its own successor", "successor brave/search\nbrave/search", "successor brave/find\nbrave/search", "7:126: a tool cannot be its own successor"},
		{"no successor", "successor brave/search\nbrave/search", "successor\nbrave/search", "7:"},
		{"more behind the digest", search + digest, search + digest + " later", "8:114: nothing is read behind the digest"},
		{"an instant that does not exist", search + digest, strings.Replace(search, "05-03", "02-30", 1) + digest, `8:25: "2026-02-30T12:00:00Z" is no instant in UTC such as 2006-01-02T15:04:05Z`},
		{"a part of a second", search + digest, strings.Replace(search, "00Z", "00.5Z", 1) + digest, `8:25: "2026-05-03T12:00:00.5Z" is no instant`},
		{"another zone", search + digest, strings.Replace(search, "00Z", "00+02:00", 1) + digest, `8:25: "2026-05-03T12:00:00+02:00" is no instant`},
		{"a server that cannot exist", "brave-2/search", "Brave/search", `12:1: id "Brave": use lower-case letters`},
		{"an unknown kind", "brave instructions", "brave instruction", "4:1: a line begins with SERVER/TOOL, or with SERVER and one of prompt, template, instructions and handshake"},
		{"no name", "brave/search active", "brave/ active", "8:1: a tool has a name"},
		{"two spaces", "brave/search active", "brave/search  active", "8:14: one space is between two words"},
		{"a space at the end", search + digest, search + digest + " ", "8:114: one space is between two words"},
		{"a tab", "brave/search active", "brave/search\tactive", "8:13: a text with such a character is quoted"},
		{"a letter that looks like another", "brave/search active", "brave/s\u0435arch active", "8:8: a text with such a character is quoted"},
		{"a needless quote", "brave/search active", `"brave/search" active`, "8:1: this text is written brave/search"},
		{"another spelling", `s\u0435arch`, `s\U00000435arch`, `11:1: this text is written "brave/s\u0435arch"`},
		{"a quote that does not end", "brave/search active", `"brave/search active`, "8:1: a quoted text begins here and does not end"},
		{"text behind a quote", `"Ann of acme"`, `"Ann of acme"x`, "7:36: a space must stand behind a quoted text"},
		{"a comment that is read backwards", "# ours", "# ours \u202e", "1:8: the comment has a character that cannot be seen"},
		{"a comment in no encoding", "# ours", "# ours \xff", "1:8: the comment has a character that cannot be seen"},
		{"a long line", "brave/search active", "brave/" + strings.Repeat("x", maxLine) + " active", "8:1: the line has 8"},
		{"something behind the end", "\nend\n", "\nend\n\n# more\n", `15:1: "end" is the last line, at line 13, and something stands behind it`},
		{"a conflict of a merge", "brave/search active", "<<<<<<< ours\nbrave/search active", "8:1: a line begins with SERVER/TOOL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(example, tt.old, tt.new, 1)
			if text == example {
				t.Fatal("the test changes nothing")
			}
			_, err := Read("etc/"+Name, []byte(text))
			if err == nil || !strings.HasPrefix(err.Error(), "etc/admitted.lock:"+tt.want) {
				t.Errorf("error %v\nwant  etc/admitted.lock:%s", err, tt.want)
			}
		})
	}
}

// Whatever is missing at the end may be what a person took out.
func TestEachFileThatWasCutOffIsRefused(t *testing.T) {
	for n := range len(example) - 1 {
		if got, err := Read(Name, []byte(example[:n])); err == nil || !strings.Contains(err.Error(), "cut off") {
			t.Errorf("with the first %d bytes: %v, %v", n, got, err)
		}
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	text := strings.NewReplacer("active", "actve", "testing", "testng").Replace(example)
	_, err := Read(Name, []byte(text))
	faults, _ := errors.AsType[switchboard.Faults](err)
	var lines []int
	for _, f := range faults {
		lines = append(lines, f.Line)
	}
	if !slices.Equal(lines, []int{4, 5, 6, 8}) {
		t.Errorf("faults at the lines %v: %v", lines, err)
	}
}

// manyLines returns a file with n pins.
func manyLines(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		p := pinOf("brave", fmt.Sprintf("tool_%06d", i))
		b.WriteString(spellLine(&p) + "\n")
	}
	b.WriteString("end\n")
	return b.Bytes()
}

func TestTheFileHasBounds(t *testing.T) {
	full := manyLines(MaxPins)
	if pins, err := Read(Name, full); err != nil || len(pins) != MaxPins {
		t.Fatalf("%d pins, %v", len(pins), err)
	}
	if _, err := Read(Name, manyLines(MaxPins+1)); err == nil || !strings.Contains(err.Error(), ":20001:1: the file has more than 20000 pins") {
		t.Errorf("one more: %v", err)
	}
	if _, err := SetAdmitted(full, pinOf("a", "one-more")); err == nil || !strings.Contains(err.Error(), "more than 20000 pins") {
		t.Errorf("one more is set: %v", err)
	}
	if _, err := Read(Name, bytes.Repeat([]byte("#\n"), MaxBytes)); err == nil || !strings.Contains(err.Error(), "at most 8388608 are read") {
		t.Errorf("a larger file: %v", err)
	}
	if _, err := Read(Name, bytes.Repeat([]byte("x\n"), MaxBytes/2)); err == nil || !strings.Contains(err.Error(), ":1001:1: what is wrong from this line on is not listed") {
		t.Errorf("many faults: %.200v", err)
	}
}

func TestAPinIsWrittenBesideItsNeighbours(t *testing.T) {
	line := func(text string) string { return text + " active ann 2026-05-03T12:00:00Z " + digest + "\n" }
	tool, prompt := func(s switchboard.ServerID, name string) switchboard.AdmittedPin { return pinOf(s, name) }, func(s switchboard.ServerID, name string) switchboard.AdmittedPin {
		p := pinOf(s, name)
		p.Kind = switchboard.PinPrompt
		return p
	}
	suspended := tool("b", "m")
	suspended.State, suspended.By = switchboard.LifeSuspended, "eve"
	const top = "# top\n\n"
	base := top + "# of m\n" + line("b/m") + "# of x\n" + line("b/x") + "# last\nend\n"
	for _, tt := range []struct {
		name, before string
		set          []switchboard.AdmittedPin
		want         string
	}{
		{"in the middle", base, []switchboard.AdmittedPin{tool("b", "n"), tool("b", "o")}, top + "# of m\n" + line("b/m") + line("b/n") + line("b/o") + "# of x\n" + line("b/x") + "# last\nend\n"},
		{"first", base, []switchboard.AdmittedPin{tool("b", "a"), prompt("b", "p")}, top + line("b prompt p") + line("b/a") + "# of m\n" + line("b/m") + "# of x\n" + line("b/x") + "# last\nend\n"},
		{"last", base, []switchboard.AdmittedPin{tool("c", "a")}, top + "# of m\n" + line("b/m") + "# of x\n" + line("b/x") + line("c/a") + "# last\nend\n"},
		{"in the place of another", base, []switchboard.AdmittedPin{tool("b", "m"), suspended}, top + "# of m\nb/m suspended eve 2026-05-03T12:00:00Z " + digest + "\n# of x\n" + line("b/x") + "# last\nend\n"},
		{"behind a head without an empty line", "# top\n" + line("b/m") + "end\n", []switchboard.AdmittedPin{tool("b", "a")}, "# top\n" + line("b/a") + line("b/m") + "end\n"},
		{"none", base, nil, base},
		{"without an end of the last line", "end", []switchboard.AdmittedPin{tool("b", "a")}, line("b/a") + "end"},
	} {
		for _, lineEnd := range []string{"\n", "\r\n"} {
			if lineEnd == "\r\n" && !strings.Contains(tt.before, "\n") {
				continue
			}
			got, err := SetAdmitted([]byte(strings.ReplaceAll(tt.before, "\n", lineEnd)), tt.set...)
			if want := strings.ReplaceAll(tt.want, "\n", lineEnd); err != nil || string(got) != want {
				t.Errorf("%s: %v\n%s\nwant\n%s", tt.name, err, got, want)
			}
		}
	}
	fresh, err := SetAdmitted(nil, tool("b", "m"))
	if err != nil || string(fresh) != head+line("b/m")+"end\n" {
		t.Errorf("a new file: %v\n%s", err, fresh)
	}
	if got, err := SetAdmitted([]byte(strings.Replace(base, "end", "", 1)), tool("b", "a")); err == nil {
		t.Errorf("a file with a mistake was edited:\n%s", got)
	}
	if got, err := RemoveAdmitted([]byte(base), tool("b", "m").PinID, tool("b", "m").PinID); err != nil || string(got) != strings.Replace(base, line("b/m"), "", 1) {
		t.Errorf("removed: %v\n%s", err, got)
	}
	if got, err := RemoveAdmitted([]byte(base), tool("b", "gone").PinID); err == nil || err.Error() != "b/gone is not in admitted.lock" {
		t.Errorf("removed: %v\n%s", err, got)
	}
}

func TestAPinThatCannotBeReadAgainIsNotWritten(t *testing.T) {
	for name, change := range map[string]func(p *switchboard.AdmittedPin){
		"an unknown scheme":     func(p *switchboard.AdmittedPin) { p.Digest = strings.Replace(digest, "d1", "d2", 1) },
		"new":                   func(p *switchboard.AdmittedPin) { p.State = switchboard.LifeNew },
		"no person":             func(p *switchboard.AdmittedPin) { p.By = "" },
		"no time":               func(p *switchboard.AdmittedPin) { p.At = noon.Add(time.Millisecond) },
		"another zone":          func(p *switchboard.AdmittedPin) { p.At = noon.In(time.FixedZone("", 3600)) },
		"no server":             func(p *switchboard.AdmittedPin) { p.Server = "a/b" },
		"no name":               func(p *switchboard.AdmittedPin) { p.Name = "" },
		"no text":               func(p *switchboard.AdmittedPin) { p.Name = "\xff" },
		"a long name":           func(p *switchboard.AdmittedPin) { p.Name = strings.Repeat("\u0435", maxLine/6) },
		"a name of none":        func(p *switchboard.AdmittedPin) { p.Kind = switchboard.PinInstructions },
		"no kind":               func(p *switchboard.AdmittedPin) { p.Kind = "" },
		"successor of active":   func(p *switchboard.AdmittedPin) { p.Successor = "a/b" },
		"successor of a prompt": func(p *switchboard.AdmittedPin) { p.Kind, p.State, p.Successor = "prompt", "deprecated", "a/b" },
	} {
		p := pinOf("a", "x")
		if change(&p); p.Kind != "" {
			if got, err := SetAdmitted(nil, p); err == nil {
				t.Errorf("%s: it was written:\n%s", name, got)
			}
		}
	}
}

// drawPin draws a pin with any texts.
func drawPin(t *rapid.T) switchboard.AdmittedPin {
	anyText := rapid.StringOfN(rapid.OneOf(rapid.RuneFrom([]rune("ab/#\"\\' \n\r\t{}e\u0435\u202e\u200bendsuccessor")), rapid.Rune()), 1, 12, -1)
	p := pinOf(rapid.SampledFrom([]switchboard.ServerID{"a", "b", "b-2", "end"}).Draw(t, "server"), anyText.Draw(t, "name"))
	p.Kind = rapid.SampledFrom([]switchboard.PinKind{switchboard.PinTool, switchboard.PinTool, switchboard.PinPrompt, switchboard.PinTemplate, switchboard.PinInstructions, switchboard.PinHandshake}).Draw(t, "kind")
	p.State = rapid.SampledFrom(states).Draw(t, "state")
	p.By = anyText.Draw(t, "by")
	p.Digest = rapid.SampledFrom([]string{digest, strings.Replace(digest, "d1", "d2:_build,example.com/time", 1)}).Draw(t, "digest")
	p.At = noon.Add(time.Duration(rapid.Int64Range(-1e9, 1e9).Draw(t, "at")) * time.Second)
	if p.Kind.OfServer() {
		p.Name = ""
	}
	if p.Kind == switchboard.PinTool && (p.State == switchboard.LifeDeprecated || p.State == switchboard.LifeRetired) && rapid.Bool().Draw(t, "has successor") {
		p.Successor = "c/" + anyText.Draw(t, "successor")
	}
	return p
}

// decorate returns the text with comments and empty lines between its lines.
func decorate(t *rapid.T, text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		out = append(out, rapid.SampledFrom([]string{"", "", "\n", "# c\n", "\n# d\n", "# e\n\n", "#\n"}).Draw(t, "above")...)
		out = append(out, line...)
	}
	return out
}

// without returns the lines of a text that are no lines of the pins.
func without(text []byte, pins []switchboard.AdmittedPin) []string {
	drop := map[string]bool{}
	for i := range pins {
		drop[spellLine(&pins[i])+"\n"] = true
	}
	return slices.DeleteFunc(slices.Collect(strings.Lines(string(text))), func(s string) bool { return drop[s] })
}

// What is read after an edit is what was read before, with the pins that were set; the other lines are the same bytes in the same order.
func TestAnEditChangesThePinsThatItNamesAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, set := rapid.SliceOfN(rapid.Custom(drawPin), 0, 6).Draw(t, "first"), rapid.SliceOfN(rapid.Custom(drawPin), 0, 4).Draw(t, "set")
		if len(first) > 0 && rapid.Bool().Draw(t, "again") {
			p := rapid.SampledFrom(first).Draw(t, "old")
			p.By = "again"
			set = append(set, p)
		}
		before, err := SetAdmitted(nil, first...)
		if err != nil {
			t.Fatal(err)
		}
		before = decorate(t, before)
		was, err := Read(Name, before)
		if err != nil {
			t.Fatalf("%v\n%s", err, before)
		}
		after, err := SetAdmitted(before, set...)
		if err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(was)
		var replaced []switchboard.AdmittedPin
		for _, p := range set {
			if old, ok := was[p.PinID]; ok {
				replaced = append(replaced, old)
			}
			want[p.PinID] = p
		}
		if is, err := Read(Name, after); err != nil || !maps.Equal(is, want) {
			t.Fatalf("%v, %v; want %v", is, err, want)
		}
		if a, b := without(before, slices.Concat(replaced, set)), without(after, slices.Concat(replaced, set)); !slices.Equal(a, b) {
			t.Fatalf("other lines: %q and then %q", a, b)
		}
		for _, c := range string(after) {
			if c != '\n' && (c > unicode.MaxASCII || !unicode.IsPrint(c)) {
				t.Fatalf("%q has a character that is not spelt out", after)
			}
		}
		// Removing what is new gives the old bytes.
		var added []switchboard.PinID
		for _, p := range set {
			if _, had := was[p.PinID]; !had {
				added = append(added, p.PinID)
			}
		}
		back, err := RemoveAdmitted(after, added...)
		if err == nil && len(replaced) > 0 {
			back, err = SetAdmitted(back, replaced...)
		}
		if err != nil || !bytes.Equal(back, before) {
			t.Fatalf("%v: added and removed:\n%s\nwant\n%s", err, back, before)
		}
	})
}

// For any text, Read returns pins or faults with places, and a text that it accepts has one spelling.
func FuzzRead(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("end"))
	f.Add([]byte("a/b active c 2026-05-03T12:00:00Z d1:\nend\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		pins, err := Read(Name, text)
		if err != nil {
			faults, ok := errors.AsType[switchboard.Faults](err)
			if !ok || pins != nil {
				t.Fatalf("%v, %T %v", pins, err, err)
			}
			for _, one := range faults {
				if one.Line < 0 || one.Line > bytes.Count(text, []byte("\n"))+1 || one.Column < 0 || strings.ContainsFunc(one.Text, func(c rune) bool { return !unicode.IsPrint(c) }) {
					t.Errorf("fault %q at %d:%d", one.Text, one.Line, one.Column)
				}
			}
			return
		}
		lines := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			lines[strings.TrimRight(line, "\r\n")] = true
		}
		for _, p := range pins {
			if !lines[spellLine(&p)] {
				t.Errorf("%q is no line of %q", spellLine(&p), text)
			}
		}
		again, err := SetAdmitted(nil, slices.Collect(maps.Values(pins))...)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Read(Name, again); err != nil || !maps.Equal(back, pins) {
			t.Errorf("%v, %v; want %v", back, err, pins)
		}
	})
}
