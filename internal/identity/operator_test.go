package identity_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/identity"
)

func TestOnlyTheTokenOfTheFolderIsAccepted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var all sync.WaitGroup
	for range 8 { // processes that start at once
		all.Go(func() {
			if _, err := identity.OpenOperator(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	o, err := identity.OpenOperator(dir)
	if err != nil {
		t.Fatal(err)
	}
	token, err := identity.ReadOperator(dir)
	if err != nil {
		t.Fatal(err)
	}
	with := func(token string) http.Header { return http.Header{identity.OperatorHeader: {token}} }
	if err := o.Check(with(token.Reveal())); err != nil {
		t.Error(err)
	}
	for name, head := range map[string]http.Header{
		"none": {}, "an empty one": with(""), "another": with(strings.ToUpper(token.Reveal())), "a part": with(token.Reveal()[:20]),
	} {
		if o.Check(head) == nil {
			t.Errorf("%s token is accepted", name)
		}
	}
	if (identity.Operator{}).Check(with("")) == nil {
		t.Error("the zero Operator accepts an empty token")
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("left behind: %v %v", files, err)
	}
}

func TestATokenThatOthersCanReadIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(file string) error{
		"of others":   func(file string) error { return os.Chmod(file, 0o640) },
		"not a token": func(file string) error { return os.WriteFile(file, []byte("secret"), 0o600) },
	} {
		dir := t.TempDir()
		if _, err := identity.OpenOperator(dir); err != nil {
			t.Fatal(err)
		}
		if err := spoil(filepath.Join(dir, identity.OperatorFile)); err != nil {
			t.Fatal(err)
		}
		if o, err := identity.OpenOperator(dir); err == nil || !strings.Contains(err.Error(), "remove it") || o.Check(http.Header{identity.OperatorHeader: {""}}) == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
