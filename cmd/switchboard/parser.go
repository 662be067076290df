package main

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// newParser returns the parser of the command line, which writes into c. Its exits are panics with a helpExit.
func newParser(c any, io streams) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name(name),
		kong.Description("One MCP endpoint in front of many MCP servers."),
		kong.Vars{"config": defaultConfig()},
		kong.ExplicitGroups(commandGroups),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: io.helpWidth()}),
		kong.PostBuild(addExamples),
		kong.UsageOnError(),
		kong.Writers(io.out, io.err),
		kong.Exit(func(code int) { panic(helpExit(code)) }),
	)
}

// parseArgs parses the command line. verbose says whether it asks for a log with details.
func parseArgs(args []string, io streams) (k *kong.Context, verbose bool, err error) {
	if k, verbose, ok := parseAlone(args, io); ok {
		return k, verbose, nil
	}
	var c cli
	parser, err := newParser(&c, io)
	if err != nil {
		return nil, false, err
	}
	k, err = parser.Parse(args)
	return k, c.Verbose, err
}

// readsCommands are the commands that read the parser of all commands.
var readsCommands = []string{"complete", "help"}

// parseAlone parses the command line with a parser that knows one command: to describe all takes longer than most commands do. ok is false if args
// do not begin with a command that can be parsed so. Help and errors are for the parser of all commands.
func parseAlone(args []string, io streams) (k *kong.Context, verbose, ok bool) {
	if len(args) == 0 || slices.Contains(readsCommands, args[0]) || slices.ContainsFunc(args, asksForHelp) {
		return nil, false, false
	}
	grammar, ok := grammarOf(args[0])
	if !ok {
		return nil, false, false
	}
	parser, err := newParser(grammar.Addr().Interface(), io)
	if err != nil {
		return nil, false, false
	}
	k, err = parser.Parse(args)
	return k, grammar.FieldByName("Verbose").Bool(), err == nil
}

// asksForHelp reports whether the argument may be a flag that ends the command.
func asksForHelp(arg string) bool {
	short := strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--")
	return arg == "--help" || arg == "--version" || short && strings.Contains(arg, "h")
}

// grammarOf returns a new value like cli with the flags of all commands and one command. ok is false if there is no command of that name.
func grammarOf(command string) (grammar reflect.Value, ok bool) {
	var fields []reflect.StructField
	for f := range reflect.TypeFor[cli]().Fields() {
		_, isCommand := f.Tag.Lookup("cmd")
		named := isCommand && cmp.Or(f.Tag.Get("name"), strings.ToLower(f.Name)) == command
		if ok = ok || named; named || !isCommand {
			fields = append(fields, f)
		}
	}
	return reflect.New(reflect.StructOf(fields)).Elem(), ok
}
