package main

import (
	"io"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/docs"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// exampleArgs returns the arguments of switchboard in an example, which is a line for a shell.
func exampleArgs(line string) []string {
	for _, end := range []string{"    #", "  #", " && ", " | ", " > ", " < "} {
		line, _, _ = strings.Cut(line, end)
	}
	var args []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		end := " "
		if line[0] == '"' || line[0] == '\'' {
			end, line = line[:1], line[1:]
		}
		var arg string
		arg, line, _ = strings.Cut(line, end)
		args = append(args, arg)
	}
	return args
}

func TestEveryCommandHasExamplesThatParse(t *testing.T) {
	var c cli
	parser, err := newParser(&c, streams{out: io.Discard, err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	rest := map[string]bool{}
	for command := range examples {
		rest[command] = true
	}
	for _, leaf := range parser.Model.Leaves(true) {
		command := leaf.Path()
		delete(rest, command)
		if n := len(examples[command]); n < 2 || n > 3 {
			t.Errorf("%s has %d examples in examples.go, not two or three", command, n)
		}
		if leaf.ClosestGroup() == nil {
			t.Errorf("%s has no group", command)
		}
	}
	for command := range rest {
		t.Errorf("there is no command %q", command)
	}
	for command, lines := range examples {
		for _, line := range lines {
			args := exampleArgs(line)
			if args[0] != name || !strings.HasPrefix(strings.Join(args[1:], " "), command) {
				t.Errorf("%s is no example of %s", line, command)
			}
			var fresh cli
			parser, err := newParser(&fresh, streams{out: io.Discard, err: io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(args[1:]); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
}

func TestEveryDocumentAndEveryCodeIsPrinted(t *testing.T) {
	var commands [][]string
	for _, p := range docs.Pages() {
		commands = append(commands, []string{"docs", p.Name})
	}
	for _, c := range switchboard.Codes() {
		commands = append(commands, []string{"help", string(c)})
	}
	for _, args := range commands {
		var out, errs strings.Builder
		code := run(t.Context(), args, streams{strings.NewReader(""), io.Discard, &errs, &out})
		if code != exitOK || errs.Len() > 0 || !strings.HasPrefix(out.String(), "#") || !strings.Contains(out.String(), "\n\n") {
			t.Errorf("%q: exit %d, %.60q, %q", args, code, out.String(), errs.String())
		}
	}
	if len(commands) < 50 {
		t.Errorf("only %d were printed", len(commands))
	}
}

func TestTheHelpListsAllGroupsInOrder(t *testing.T) {
	var out strings.Builder
	if code := run(t.Context(), []string{"--help"}, streams{strings.NewReader(""), &out, io.Discard, &out}); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	from := 0
	for _, group := range commandGroups {
		at := strings.Index(out.String()[from:], "\n"+group.Title+"\n")
		if at < 0 {
			t.Fatalf("%q is not at its place in\n%s", group.Title, out.String())
		}
		from += at
	}
	for _, hidden := range []string{"guard", "sample"} {
		if strings.Contains(out.String(), "\n  "+hidden) {
			t.Errorf("%s is listed", hidden)
		}
	}
}
