package app

import (
	"context"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/telemetry"
	"github.com/summit-switchboard/switchboard/internal/turn"
)

func TestTheFirstWrapperIsTheOutermost(t *testing.T) {
	var passed []string
	trace := func(name string) wrapper {
		return wrapper{name, func(next switchboard.Caller) switchboard.Caller {
			return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
				passed = append(passed, name)
				return next.Call(ctx, c)
			})
		}}
	}
	server := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		passed = append(passed, "server")
		return switchboard.Result{}, nil
	})
	if _, err := wrapCaller(server, []wrapper{trace("a"), trace("b"), trace("c")}).Call(t.Context(), &switchboard.Call{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "c", "server"}; !slices.Equal(passed, want) {
		t.Errorf("a call passes %q, want %q", passed, want)
	}
}

// The drawing ends with the Caller that the wrappers are around.
func TestTheDrawingInArchitectureShowsAllWrappersInOrder(t *testing.T) {
	text, err := os.ReadFile("../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## The call\n")
	_, section, _ = strings.Cut(section, "\n```\n")
	drawing, _, closed := strings.Cut(section, "\n```\n")
	if !closed {
		t.Fatal("there is no fenced block in the section \"The call\"")
	}
	var drawn []string
	for line := range strings.Lines(drawing) {
		drawn = append(drawn, strings.Fields(line)[0])
	}
	var coded []string
	for _, w := range (&callChain{metrics: &telemetry.Recorder{}, turns: &turn.Turns{}}).wrappers() {
		coded = append(coded, w.name)
	}
	if coded = append(coded, "upstream.Fleet"); !slices.Equal(drawn, coded) {
		t.Errorf("docs/ARCHITECTURE.md draws\n%s\nand chain.go has\n%s", strings.Join(drawn, "\n"), strings.Join(coded, "\n"))
	}
}

func TestEachWrapperHasTheNameOfItsFunction(t *testing.T) {
	for _, w := range (&callChain{metrics: &telemetry.Recorder{}, turns: &turn.Turns{}}).wrappers() {
		f := runtime.FuncForPC(reflect.ValueOf(w.wrap).Pointer())
		if f == nil || strings.Contains(f.Name(), "internal/app.") {
			continue // it is a field that New sets, or a closure that adds arguments
		}
		pkg, name, _ := strings.Cut(w.name, ".")
		if got := strings.TrimSuffix(f.Name(), "-fm"); !strings.Contains(got, "/"+pkg+".") || !strings.HasSuffix(got, "."+name) {
			t.Errorf("the wrapper %s is %s", w.name, got)
		}
	}
}
