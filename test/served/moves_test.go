package served_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestACallThatItsSessionLeavesBehindIsAnsweredAndCancelled(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	for _, who := range people {
		if who.modern {
			continue
		}
		t.Run(who.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			tape, until := filepath.Join(folder, "tape"), filepath.Join(folder, "until")
			servers := rig.Fakes(
				rig.FakeRow("near", "tape="+tape, fmt.Sprintf(rig.Tool, "near")),
				fmt.Sprintf("far: {transport: http, url: %q}", overHTTP(t, "tape="+tape, fmt.Sprintf(rig.Tool, "far"))))
			t.Cleanup(func() { rig.WriteFile(t, until, "") }) // before the servers are waited for
			c := rig.ServeReplicas(t, strings.Replace(servers, "-- switchboard.yaml --\n", "-- switchboard.yaml --\ngrace: 1m\n", 1))

			// A process does not say for which of its calls it asks: one question at a time is of it.
			questioned := []string{"near", "far", "far", "far"}
			within, stop := context.WithTimeout(t.Context(), 2*rig.Patience)
			defer stop()
			asked, moved := make(chan string, len(questioned)), make(chan struct{})
			call := who.connect(t, c.URL+"/mcp", &person{name: "Ann", header: http.Header{rig.ClientHeader: {"Ann"}}, asked: asked, ready: func() { <-moved }})
			ended, cancelled := make(chan error, len(questioned)), make(chan error, 2)
			ctx, cancel := context.WithCancel(within)
			defer cancel()
			for _, tool := range questioned {
				go func() {
					text, err := call(within, tool, map[string]any{"do": "ask", "method": questions[0].method, "params": questions[0].params})
					if err == nil && !strings.Contains(text, questions[0].answer) {
						err = fmt.Errorf("the server hears %s", text)
					}
					ended <- err
				}()
			}
			for _, tool := range []string{"near", "far"} {
				go func() {
					_, err := call(ctx, tool, map[string]any{"do": "await", "until": until})
					cancelled <- err
				}()
			}
			for range questioned {
				select {
				case <-asked:
				case err := <-ended:
					if within.Err() == nil {
						t.Fatalf("a call ends before its client has answered: %v", err)
					}
					wait.Late(t, "not all calls ask: %v", err)
				case <-within.Done():
					wait.Late(t, "not all calls ask")
				}
			}
			rig.Eventually(t, "the calls are under way", func() string {
				if n := strings.Count(rig.ReadFile(t, tape), `\"await\"`); n < 2 {
					return fmt.Sprint(n, " are")
				}
				return ""
			})
			home := c.StopOwner(t, func() {
				if _, err := call(within, "far", map[string]any{}); err != nil {
					t.Error(err)
				}
			})

			close(moved)
			for range questioned {
				wait.Answered(t, within, "a call whose question is answered", <-ended)
			}
			if who.name == "mcp-go legacy" { // which does not say that it cancels
				rig.WriteFile(t, until, "")
			} else {
				cancel()
				rig.Eventually(t, "both servers hear what is cancelled", func() string {
					if n := strings.Count(rig.ReadFile(t, tape), "notifications/cancelled"); n < 2 {
						return fmt.Sprint(n, " do")
					}
					return ""
				})
			}
			for range 2 {
				if err := <-cancelled; (err == nil) != (ctx.Err() == nil) {
					t.Errorf("a call that is not asked: %v", err)
				}
			}
			if took := home.AwaitEnd(t); took > rig.Patience {
				t.Errorf("it stops %v after that", took)
			}
		})
	}
}
