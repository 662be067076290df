package main

import (
	"io"
	"reflect"
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
				if args[0] != "help" && args[0] != "complete" {
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

func BenchmarkParseServe(b *testing.B) {
	for b.Loop() {
		if _, _, err := parseArgs([]string{"serve"}, streams{out: io.Discard, err: io.Discard}); err != nil {
			b.Fatal(err)
		}
	}
}
