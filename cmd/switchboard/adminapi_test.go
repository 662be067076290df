package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
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
