package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

func TestThePersonIsTheSameWhateverTheOrderOfTheCatalog(t *testing.T) {
	var all []realServer
	for i := range 60 {
		all = append(all, realServer{ID: fmt.Sprint("x__", i), Tools: make([]json.RawMessage, 5+i%21)})
	}
	one, err := person(all)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(all)
	other, err := person(all)
	if err != nil || len(one) != personServers || !slices.EqualFunc(one, other, func(a, b realServer) bool { return a.ID == b.ID }) {
		t.Errorf("%d and %d servers, %v", len(one), len(other), err)
	}
	if _, err := person(all[:personServers-1]); err == nil {
		t.Error("there is somebody with more servers than there are")
	}
}

func TestThePersonsServersHaveDistinctIDs(t *testing.T) {
	servers, err := readPerson(realdata.File())
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the tools of real servers are not here (SWITCHBOARD_DATA says where): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	long := "x__a-name-that-is-far-too-long-for-an-id-of-ours"
	ids := named(append(servers, realServer{ID: long}, realServer{ID: long}, realServer{ID: "x__漢"}, realServer{ID: "none"}))
	for i, id := range ids {
		if err := switchboard.CheckID(id); err != nil {
			t.Error(err)
		}
		if slices.Contains(ids[:i], id) {
			t.Errorf("%s stands there twice", id)
		}
	}
}
