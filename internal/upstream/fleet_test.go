package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: not yet: %s", patience, what)
		}
		<-tick.C
	}
}

// child returns the configuration of a fake on stdio.
func child(id, kind string, env ...string) switchboard.Server {
	s := switchboard.Server{
		ID: switchboard.ServerID(id), Transport: switchboard.TransportStdio,
		Command: []string{os.Args[0]}, Env: map[string]switchboard.Secret{fakeEnv: switchboard.NewSecret(kind)},
		Share: switchboard.ShareAll,
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		s.Env[name] = switchboard.NewSecret(value)
	}
	return s
}

// open returns a fleet of the servers that is closed with the test.
func open(t *testing.T, o Options, servers ...switchboard.Server) *Fleet {
	t.Helper()
	f := New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		f.Close(ctx)
	})
	f.Set(servers)
	return f
}

// ready returns a fleet whose servers are all ready.
func ready(t *testing.T, o Options, servers ...switchboard.Server) *Fleet {
	t.Helper()
	f := open(t, o, servers...)
	for _, s := range servers {
		await(t, f, s.ID, StateReady)
	}
	return f
}

func status(t *testing.T, f *Fleet, id switchboard.ServerID) ServerStatus {
	t.Helper()
	for _, s := range f.Status() {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("no status of %s", id)
	return ServerStatus{}
}

func await(t *testing.T, f *Fleet, id switchboard.ServerID, want State) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for status(t, f, id).State != want {
		if time.Now().After(deadline) {
			s := status(t, f, id)
			t.Fatalf("%s is %s, want %s; %+v", id, s.State, want, s.LastFailure)
		}
		time.Sleep(0)
	}
}

// use returns a call of the tool echo with the arguments.
func use(server, arguments string) *switchboard.Call {
	return &switchboard.Call{
		Principal: switchboard.Principal{Tenant: "acme", ID: "ann"},
		Tool:      &switchboard.Tool{ID: switchboard.ToolID{Server: switchboard.ServerID(server), Name: "echo"}, Definition: []byte(tool("echo"))},
		Params:    []byte(`{"name":"as_the_client_calls_it","arguments":` + arguments + `}`),
	}
}

// fields decodes an object of a test.
func fields(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("%v: %.200s", err, data)
	}
	return m
}

// wantCode checks that err is a refusal with the code.
func wantCode(t *testing.T, err error, want switchboard.Code) *switchboard.Error {
	t.Helper()
	e, ok := errors.AsType[*switchboard.Error](err)
	if !ok || e.Code != want {
		t.Fatalf("error %v, want %s", err, want)
	}
	return e
}

func TestAServerOfEitherEraIsListedAndCalled(t *testing.T) {
	for _, kind := range []string{"legacy", "modern", "exits-when-probed", "empty-discover", "banner"} {
		t.Run(kind, func(t *testing.T) {
			f := ready(t, Options{}, child("one", kind))
			offers := f.Offers()
			if len(offers) != 1 || len(offers[0].Tools) != 2 || string(offers[0].Tools[0]) != tool("echo") || offers[0].Stale {
				t.Fatalf("offers %+v", offers)
			}
			want := EraLegacy
			if kind == "modern" {
				want = EraModern
			}
			if s := status(t, f, "one"); s.Era != want || s.Name != "fake" || s.Tools != 2 {
				t.Errorf("status %+v", s)
			}
			result, err := f.Call(t.Context(), use("one", `{"n": 12345678901234567890}`))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(result, []byte(`"name":"echo","arguments":{"n": 12345678901234567890}`)) {
				t.Errorf("the server got %s", result)
			}
		})
	}
}

var _ = []any{fmt.Sprint, slog.New, filepath.Join, slices.Sort[[]int], sync.OnceFunc}
