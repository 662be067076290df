package served_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// unpack unpacks the stores of an old release into a folder.
func unpack(t *testing.T, file, into string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it is only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		rig.WriteFile(t, filepath.Join(into, h.Name), string(text))
	}
}

// testdata/README.md tells how the old stores were made.
func TestAStoreOfAnOldReleaseKeepsItsReceiptsAndVerifiesThem(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	for name, begins := range map[string]string{"stopped": "n1: as it was written: 1 to ", "trimmed": "n1: as it was written: 43 to "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := t.TempDir()
			unpack(t, filepath.Join("testdata", "store-008e6b2.tar.gz"), old)
			_, url := rig.KeepLedger(t, 0, fmt.Sprintf(rig.Tool, "post"))
			dir := t.TempDir()
			configure(t, dir, url, nil)
			if err := os.Rename(filepath.Join(old, name), filepath.Join(dir, ".switchboard")); err != nil {
				t.Fatal(err)
			}
			had := rig.ReadFile(t, filepath.Join(old, name+".jsonl"))
			kept := func(when string) (more []string) {
				t.Helper()
				out, errs, code := rig.Command(t, dir, "receipts", "export")
				added, ok := strings.CutPrefix(out, had)
				if code != 0 || !ok {
					t.Fatalf("%s: exit %d: %d bytes of receipts, and there were %d: %s", when, code, len(out), len(had), errs)
				}
				if out, errs, code := rig.Command(t, dir, "receipts", "verify"); code != 0 || !strings.Contains(out, begins) || strings.Contains(out, "n2") {
					t.Fatalf("%s: verify: exit %d: %s%s", when, code, out, errs)
				}
				list, errs, code := rig.Command(t, dir, "receipts", "list", "--limit", "1000", "--json")
				if want := strings.Count(out, "\n"); code != 0 || strings.Count(list, `"seq":`) != want {
					t.Fatalf("%s: list: exit %d: %d receipts of %d: %s", when, code, strings.Count(list, `"seq":`), want, errs)
				}
				return strings.Split(strings.TrimSpace(added), "\n")
			}
			if more := kept("before a start"); more[0] != "" {
				t.Errorf("nobody has written %q", more)
			}
			last := strings.Count(had, "\n")
			if name == "trimmed" {
				last += 42
			}
			for life := range 2 {
				g := rig.Serve(t, dir)
				s := g.Open(t, "/mcp", life == 0)
				for id := range 3 {
					if a := s.Try("post", 1001+10*life+id); !a.Good() {
						t.Errorf("life %d: %v", life, a)
					}
				}
				g.Signal(t, syscall.SIGTERM)
				g.AwaitEnd(t)
				more, intents := kept(fmt.Sprintf("after start %d", life+1)), 0
				for i, line := range more {
					if !strings.HasSuffix(line, fmt.Sprintf(`"id":"n1/%d"}`, last+1+i)) {
						t.Errorf("the chain goes on with %s, want n1/%d", line, last+1+i)
					}
					if strings.Contains(line, `"kind":"intent"`) {
						intents++
					}
				}
				if want := 3 * (life + 1); intents != want {
					t.Errorf("%d intents were added, want %d", intents, want)
				}
			}
		})
	}
}
