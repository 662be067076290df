package main

import (
	"io"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/alecthomas/kong"
)

func TestAParserOfOneCommandReadsWhatTheParserOfAllReads(t *testing.T) {
	synctest.Test(t, compareParsers) // both read relative times at one instant
}

func compareParsers(t *testing.T) {
	silent := streams{out: io.Discard, err: io.Discard}
	for command, lines := range examples {
		for _, line := range lines {
			args := exampleArgs(line)[1:]
			alone, verbose, ok := parseAlone(args, silent)
			if !ok {
				if !slices.Contains(readsCommands, args[0]) {
					t.Errorf("%s needs the parser of all commands", line)
				}
				continue
			}
			var c cli
			parser, err := newParser(&c, silent)
			if err != nil {
				t.Fatal(err)
			}
			all, err := parser.Parse(args)
			if err != nil {
				t.Fatal(err)
			}
			if alone.Command() != all.Command() || verbose != c.Verbose || !reflect.DeepEqual(targetOf(alone), targetOf(all)) {
				t.Errorf("%s (%s): alone it is %s of %+v, among all commands %s of %+v", line, command, alone.Command(), targetOf(alone), all.Command(), targetOf(all))
			}
		}
	}
}

// targetOf returns the command that was parsed, with its flags and arguments.
func targetOf(k *kong.Context) any { return k.Selected().Target.Interface() }

func TestHelpAndMistakesNeedTheParserOfAllCommands(t *testing.T) {
	for _, args := range [][]string{
		nil, {"--help"}, {"serve", "--help"}, {"serve", "-h"}, {"serve", "-vh"}, {"--version"}, {"serve", "--version"}, {"serv"}, {"serve", "--no-such-flag"}, {"-v", "serve"}, {"help", "serve"}, {"complete", "bash"},
	} {
		if _, _, ok := parseAlone(args, streams{out: io.Discard, err: io.Discard}); ok {
			t.Errorf("%q was parsed alone", args)
		}
	}
}

// A command that asks for the parser, or for what it has parsed, may read the other commands from there.
func TestACommandThatReadsTheOthersHasTheParserOfAll(t *testing.T) {
	var c cli
	parser, err := newParser(&c, streams{out: io.Discard, err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	for _, leaf := range parser.Model.Leaves(false) {
		for in := range leaf.Target.Addr().MethodByName("Run").Type().Ins() {
			if in == reflect.TypeFor[*kong.Context]() || in == reflect.TypeFor[*kong.Kong]() {
				read = append(read, leaf.Path())
			}
		}
	}
	if slices.Sort(read); !slices.Equal(read, readsCommands) {
		t.Errorf("%q read the parser, and readsCommands has %q", read, readsCommands)
	}
}

func BenchmarkParseServe(b *testing.B) {
	for b.Loop() {
		if _, _, err := parseArgs([]string{"serve"}, streams{out: io.Discard, err: io.Discard}); err != nil {
			b.Fatal(err)
		}
	}
}
