package serving_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/serving"
)

// As a child process with an argument "hold DIR", this test binary adds a row and holds it until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SERVING_TEST_HOLD"); dir != "" {
		if _, err := serving.Add(context.Background(), dir, row("held")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		select {}
	}
	os.Exit(m.Run())
}

func row(version string) serving.Neighbor {
	return serving.Neighbor{Address: "127.0.0.1:1", Token: serving.NewToken(), Version: version, Configuration: "/c.yaml", Tenant: "default", Identity: "i"}
}

func add(t *testing.T, dir, version string) *serving.Claim {
	t.Helper()
	c, err := serving.Add(t.Context(), dir, row(version))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func versions(t *testing.T, dir string) string {
	t.Helper()
	rows, err := serving.Rows(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range rows {
		all = append(all, r.Version)
	}
	return strings.Join(all, " ")
}

func TestARowIsThereUntilItIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if got := versions(t, dir); got != "" {
		t.Errorf("without a folder: %s", got)
	}
	first, second := add(t, dir, "one"), add(t, dir, "two")
	if got := versions(t, dir); got != "two one" {
		t.Errorf("rows: %s", got)
	}
	if err := first.Remove(); err != nil {
		t.Error(err)
	}
	if got := versions(t, dir); got != "two" {
		t.Errorf("after one was removed: %s", got)
	}
	if err := second.Remove(); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "serving", "*.lock")); err != nil || len(left) > 1 { // of the edits
		t.Errorf("locks: %v, %v", left, err)
	}
}

// The row of a process that was killed does not count, whichever process has its number now, and the next change drops it.
func TestTheRowOfADeadProcessDoesNotCount(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), "SERVING_TEST_HOLD="+dir)
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 5)
	if _, err := out.Read(line); err != nil || string(line) != "held\n" {
		t.Fatalf("%q %v", line, err)
	}
	if got := versions(t, dir); got != "held" {
		t.Errorf("while it lives: %s", got)
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	// The file still has the row. Let it name a process that lives.
	file := filepath.Join(dir, serving.File)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), fmt.Sprintf(`"pid":%d`, holder.Process.Pid), fmt.Sprintf(`"pid":%d`, os.Getpid()), 1))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := versions(t, dir); got != "" {
		t.Errorf("after its end: %s", got)
	}
	add(t, dir, "next")
	if text, err = os.ReadFile(file); err != nil || strings.Contains(string(text), "held") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestAFileThatIsNotOursDoesNotCount(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(file string, text []byte) error
		want   string
	}{
		"others can read it":  {func(file string, _ []byte) error { return os.Chmod(file, 0o644) }, "other users may read it"},
		"others can write it": {func(file string, _ []byte) error { return os.Chmod(file, 0o602) }, "other users may write it"},
		"it is cut off":       {func(file string, text []byte) error { return os.WriteFile(file, text[:len(text)/2], 0o600) }, "remove it"},
		"it is too long": {func(file string, text []byte) error {
			return os.WriteFile(file, append(text, strings.Repeat(" ", 1<<20)...), 0o600)
		}, "remove it"},
		"a row names another file": {func(file string, text []byte) error {
			var d struct{ Rows []map[string]any }
			if err := json.Unmarshal(text, &d); err != nil {
				return err
			}
			d.Rows[0]["id"] = "../../x"
			text, err := json.Marshal(map[string]any{"rows": d.Rows})
			if err != nil {
				return err
			}
			return os.WriteFile(file, text, 0o600)
		}, "remove the file"},
		"it belongs to another user": {func(file string, _ []byte) error { return os.Chown(file, 65532, -1) }, "another user"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "belongs") && os.Getuid() != 0 {
				t.Skip("skipped: only root can give a file away")
			}
			dir := t.TempDir()
			add(t, dir, "one")
			file := filepath.Join(dir, serving.File)
			text, err := os.ReadFile(file)
			if err == nil {
				err = tt.change(file, text)
			}
			if err != nil {
				t.Fatal(err)
			}
			if rows, err := serving.Rows(dir); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v", rows, err)
			}
			if c, err := serving.Add(t.Context(), dir, row("two")); err == nil {
				t.Errorf("a row is added: %v", c)
			}
		})
	}
}

func TestTheTokenIsNeverPrinted(t *testing.T) {
	r := row("one")
	text, err := json.Marshal(r)
	if all := fmt.Sprintf("%v %+v %#v %s", r, r, r, text); err != nil || strings.Contains(all, r.Token.Reveal()) {
		t.Errorf("%v %s", err, all)
	}
}

// Of many that want to start a process at the same time, one does; the others find it.
func TestOneOfManyStarts(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	var mu sync.Mutex
	started := 0
	serves := func() bool { return versions(t, dir) != "" }
	for range 50 {
		all.Go(func() {
			release, err := serving.LockStart(t.Context(), dir, serves)
			if err != nil {
				t.Error(err)
				return
			}
			if release == nil { // it serves
				return
			}
			defer release()
			if !serves() {
				add(t, dir, "one")
				mu.Lock()
				started++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if started != 1 {
		t.Errorf("%d were started", started)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := serving.LockStart(ctx, dir, nil); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := serving.LockStart(ctx, dir, func() bool { return false }); err == nil || !strings.Contains(err.Error(), "another process holds the lock") {
		t.Errorf("the lock is held, and the wait has ended: %v", err)
	}
}
