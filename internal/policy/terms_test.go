package policy

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Decisions that follow each other build the terms of a tool once, and the garbage collector may take them.
func TestTermsAreBuiltOnceUntilTheGarbageCollectorTakesThem(t *testing.T) {
	tools := []*switchboard.Tool{{ID: switchboard.ToolID{Server: "s", Name: "a"}}, {ID: switchboard.ToolID{Server: "s", Name: "b"}}}
	var brief briefTerms
	decide := func() weak.Pointer[toolTerms] {
		table := brief.table()
		first, second := table.find(tools), brief.table().find(tools[1:])
		if len(first) != 2 || len(second) != 1 || first[1] != second[0] {
			t.Errorf("the terms of the second tool were built twice: %v and %v", first, second)
		}
		runtime.KeepAlive(table)
		return weak.Make(table)
	}
	gone := decide()
	for range 3 {
		runtime.GC()
	}
	if gone.Value() != nil {
		t.Error("the terms stay in memory")
	}
	if again := brief.table().find(tools); len(again) != 2 {
		t.Errorf("after that there are no terms: %v", again)
	}
}

// A table that some decision always holds is replaced when it has the terms of too many tools.
func TestATableOfTermsDoesNotGrowWithoutEnd(t *testing.T) {
	var brief briefTerms
	table := brief.table()
	for i := range maxKeptTerms + 1 {
		table.find([]*switchboard.Tool{{ID: switchboard.ToolID{Server: "s", Name: fmt.Sprint(i)}}})
	}
	if brief.table() == table {
		t.Errorf("the table goes on with %d tools", table.size.Load())
	}
	runtime.KeepAlive(table)
}

// A collection between two looks of a person takes nothing, and half a minute after the last look everything may go.
func TestTermsStayWhileAPersonLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tools := []*switchboard.Tool{{ID: switchboard.ToolID{Server: "s", Name: "a"}}}
		var brief briefTerms
		look := func() weak.Pointer[toolTerms] {
			brief.keep()
			brief.table().find(tools)
			return weak.Make(brief.table())
		}
		collect := func() {
			for range 3 {
				runtime.GC()
			}
		}
		kept := look()
		for range 3 {
			time.Sleep(termsKept - time.Second)
			collect()
			if kept.Value() == nil {
				t.Fatal("the terms are gone, although a person looks")
			}
			look()
		}
		time.Sleep(termsKept + time.Second)
		collect()
		if kept.Value() != nil {
			t.Error("the terms stay in memory, although no person looks any more")
		}
		runtime.KeepAlive(&brief)
	})
}
