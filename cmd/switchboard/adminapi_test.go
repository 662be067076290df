package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A command reads a list to its end, and ends itself where a list has none.
func TestACommandReadsAllPartsOfAList(t *testing.T) {
	asked := 0
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		q := r.URL.Query()
		switch after := q.Get("after"); {
		case q.Get("limit") != "500" || q.Get("of") != "this":
			http.Error(w, r.URL.RawQuery, http.StatusBadRequest)
		case r.URL.Path == "/endless":
			fmt.Fprint(w, `{"names":["a"],"next":"a b/&"}`)
		case after == "":
			fmt.Fprint(w, `{"names":["a","b"],"next":"b &1"}`)
		case after == "b &1":
			fmt.Fprint(w, `{"names":["c"],"next":"c"}`)
		case after == "c":
			fmt.Fprint(w, `{"names":[]}`)
		}
	}))
	defer admin.Close()
	t.Setenv(keyVariable, "swo_x")
	target := &taskTarget{targetFlags: targetFlags{URL: admin.URL}}
	got, err := fetchList[string](t.Context(), target, "/list", "names", map[string][]string{"of": {"this"}})
	if err != nil || !slices.Equal(got, []string{"a", "b", "c"}) || asked != 3 {
		t.Errorf("%q, %v, in %d requests", got, err, asked)
	}
	asked = 0
	if _, err := fetchList[string](t.Context(), target, "/endless", "names", map[string][]string{"of": {"this"}}); err == nil || !strings.Contains(err.Error(), "does not get on") || asked != 2 {
		t.Errorf("an endless list: %v, in %d requests", err, asked)
	}
}

// Who is refused without a key is told where a command reads one; who has sent one is told what is wrong with it.
func TestARefusalWithoutAKeyNamesTheVariable(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"detail":"no","code":"SB-AUTH-001"}`)
	}))
	defer admin.Close()
	target := &taskTarget{targetFlags: targetFlags{URL: admin.URL}}
	for key, want := range map[string]string{"": "SWITCHBOARD_KEY", "swo_x": ""} {
		t.Setenv(keyVariable, key)
		_, asked := target.askAdmin(t.Context(), http.MethodGet, "/v1/status", nil)
		_, opened := target.openAdmin(t.Context(), "/v1/events")
		for _, err := range []error{asked, opened} {
			if e, ok := errors.AsType[*switchboard.Error](err); !ok || !strings.Contains(e.Hint, want) || want == "" && e.Hint != "" {
				t.Errorf("with the key %q: %+v", key, err)
			}
		}
	}
}
