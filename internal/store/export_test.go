package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// filled stores some items of each kind in s.
func filled(t *testing.T, s store.Store) {
	t.Helper()
	write(t, s, "g", "n", "text \"\n\u2028é")
	write(t, s, "g", "m\x00", "\xff\x00")
	write(t, s, "another", "empty", "")
	if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "timed", Data: []byte("x"), TTL: time.Hour}}}); err != nil {
		t.Fatal(err)
	}
	used := store.Limit{Name: "used", Every: time.Hour, Burst: 2}
	for range used.Burst {
		if _, _, err := s.Take(t.Context(), "g", store.Want{Now: 1}, used); err != nil {
			t.Fatal(err)
		}
	}
	for id, amounts := range map[string][]int64{"live": nil, "settled\x00": {3, 0}} {
		a, b := account("a", store.MaxAmount, 1<<49), account("é", 10, 3)
		b.Ends = time.Now().Add(time.Hour)
		hold(t, s, id, a, b)
		if amounts != nil {
			settle(t, s, id, amounts...)
		}
	}
	add(t, s, "l", "a", "", "\xff", "d")
	add(t, s, "trimmed", "a", "b", "c")
	add(t, s, "gone", "a", "b")
	for log, first := range map[string]uint64{"trimmed": 3, "gone": 9} {
		if err := s.Trim(t.Context(), log, first); err != nil {
			t.Fatal(err)
		}
	}
}

func export(t *testing.T, s store.Store) string {
	t.Helper()
	var out bytes.Buffer
	if err := store.Export(t.Context(), s, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// body returns an export without its first and last line, with sorted values and limits.
func body(export string) string {
	lines := strings.Split(export, "\n")
	lines = lines[1 : len(lines)-2]
	logs := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, `{"kind":"log"`) })
	slices.Sort(lines[:max(0, logs)])
	return milliseconds.ReplaceAllString(strings.Join(lines, "\n"), `"$1"`)
}

// milliseconds rounds instants as the least precise backend does.
var milliseconds = regexp.MustCompile(`"(\d{13})\d{3}"`)

func TestAnExportCanBeImportedIntoEachBackend(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ backend, open func() store.Store) {
		from := open()
		filled(t, from)
		all := export(t, from)
		for _, b := range backends {
			t.Run("into "+b.name, func(t *testing.T) {
				s := b.newStore(t)()
				if err := store.Import(t.Context(), s, iotest.HalfReader(strings.NewReader(all))); err != nil {
					t.Fatal(err)
				}
				if got := export(t, s); body(got) != body(all) {
					t.Errorf("the second export:\n%s\nthe first:\n%s", got, all)
				}
				if v := value(t, s, "g", "n"); string(v.Data) != "text \"\n\u2028é" || v.Version != value(t, from, "g", "n").Version {
					t.Errorf("Value = %+v", v)
				}
				if _, wait, err := s.Take(t.Context(), "g", store.Want{Now: 1}, store.Limit{Name: "used", Every: time.Hour, Burst: 2}); wait == 0 || err != nil {
					t.Errorf("a limit that was used up is available: %v", err)
				}
				wantSums(t, s, "a=3+562949953421312 é=0+3")
				if !hold(t, s, "live", account("a", 0, 1)) || !hold(t, s, "settled\x00", account("a", 0, 1)) || settle(t, s, "settled\x00", 0, 0) || !settle(t, s, "live", 5, 0) {
					t.Error("a hold is not the one that was exported")
				}
				wantSums(t, s, "a=8+0 é=0+0")
				if got := span(t, s, "gone"); got != (store.Span{First: 3, Last: 2}) {
					t.Errorf("Span = %v", got)
				}
				if got := read(t, s, 0, 9); got != "1=a 2= 3=\xff 4=d" {
					t.Errorf("Read = %q", got)
				}
				add(t, s, "trimmed", "d")
				if got := span(t, s, "trimmed"); got != (store.Span{First: 3, Last: 4}) {
					t.Errorf("Span = %v", got)
				}
				if err := s.Check(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

func TestOnlyAnEmptyStoreTakesAnImport(t *testing.T) {
	from := closed(t, store.NewMemory())
	filled(t, from)
	all := export(t, from)
	for what, put := range map[string]func(store.Store){
		"a value": func(s store.Store) { write(t, s, "x", "x", "x") },
		"a log":   func(s store.Store) { add(t, s, "x", "x") },
		"a hold":  func(s store.Store) { hold(t, s, "x", account("x", 1, 0)) },
		"a limit": func(s store.Store) {
			if _, _, err := s.Take(t.Context(), "x", store.Want{Now: 1}, store.Limit{Name: "x", Every: time.Hour, Burst: 1}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			onEach(t, func(t *testing.T, s store.Store) {
				put(s)
				before := body(export(t, s))
				if err := store.Import(t.Context(), s, strings.NewReader(all)); !errors.Is(err, store.ErrConflict) {
					t.Errorf("Import = %v, want ErrConflict", err)
				}
				if got := body(export(t, s)); got != before {
					t.Errorf("the store holds\n%s\nand held\n%s", got, before)
				}
				if fault := s.Status().Fault; fault != "" {
					t.Errorf("the store is at fault: %s", fault)
				}
			})
		})
	}
}

func TestExpiredValuesAreNeitherExportedNorImported(t *testing.T) {
	inTime(t, func(t *testing.T, s store.Store) {
		if _, err := s.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Data: []byte("x"), TTL: 20 * time.Millisecond}}}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Take(t.Context(), "g", store.Want{Now: 1}, store.Limit{Name: "l", Every: 20 * time.Millisecond, Burst: 1}); err != nil {
			t.Fatal(err)
		}
		full := export(t, s)
		if n := strings.Count(full, "\n"); n > 4 {
			t.Errorf("%d lines:\n%s", n, full)
		}
		after(50 * time.Millisecond)
		if got := body(export(t, s)); got != "" {
			t.Errorf("an expired value is exported: %s", got)
		}
		if err := store.Import(t.Context(), s, strings.NewReader(full)); err != nil {
			t.Fatal(err)
		}
		if v := value(t, s, "g", "n"); v.Version != 0 {
			t.Errorf("an expired value is imported: %+v", v)
		}
	})
}

// Older versions can import it then.
func TestAnExportWithoutAccountsHasTheFirstFormat(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		if all := export(t, s); !strings.Contains(all, `"format":1,`) {
			t.Errorf("an empty store: %s", all)
		}
		write(t, s, "g", "n", "x")
		if all := export(t, s); !strings.Contains(all, `"format":1,`) {
			t.Errorf("a store with a value: %s", all)
		}
		hold(t, s, "h", account("a", 1, 1))
		if all := export(t, s); !strings.Contains(all, `"format":2,`) {
			t.Errorf("a store with an account: %s", all)
		}
	})
}

func TestAnExpiredHoldIsExportedAsSettled(t *testing.T) {
	inTime(t, func(t *testing.T, s store.Store) {
		holdFor(t, s, "g", "short", 20*time.Millisecond, account("a", 9, 2), store.Account{Name: "over", Max: 9, Amount: 1, Ends: time.Now().Add(30 * time.Second)})
		holdFor(t, s, "g", "long", time.Hour, account("a", 9, 3))
		full := export(t, s)
		after(50 * time.Millisecond)
		later := export(t, s)
		if strings.Contains(later, "short") {
			t.Errorf("an expired hold is exported: %s", later)
		}
		for _, all := range []string{full, later} {
			to := closed(t, store.NewMemory())
			if err := store.Import(t.Context(), to, strings.NewReader(all)); err != nil {
				t.Fatal(err)
			}
			wantSums(t, to, "a=2+3 over=1+0")
		}
	})
}

func TestAnIncompleteExportIsRefused(t *testing.T) {
	from := closed(t, store.NewMemory())
	filled(t, from)
	all := export(t, from)
	lines := strings.SplitAfter(all, "\n")
	bad := map[string]string{
		"empty":                  "",
		"something else":         "hello\n",
		"JSON of something else": `{"mcpServers":{}}` + "\n",
		"of a later format":      strings.Replace(all, `"format":2`, `"format":3`, 1),
		"with a digest changed":  strings.Replace(all, `"sha256":"`, `"sha256":"0`, 1),
		"with a line twice":      strings.Join(slices.Insert(slices.Clone(lines), 2, lines[2]), ""),
		"followed by more":       all + "\n",
		"twice":                  all + all,
		"with a longer line":     strings.Replace(all, "}\n", strings.Repeat(" ", 1<<16)+"}\n", 1),
	}
	for i := range lines[:len(lines)-1] {
		bad[fmt.Sprintf("without line %d", i+1)] = strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "")
	}
	for i := 0; i < len(all)-1; i += 7 {
		bad[fmt.Sprintf("cut at %d", i)] = all[:i]
		if i > len(lines[0]) { // a cut in the first line is also refused
			bad[fmt.Sprintf("with byte %d changed", i)] = all[:i] + string(all[i]^1) + all[i+1:]
		}
	}
	onEach(t, func(t *testing.T, s store.Store) {
		for what, text := range bad {
			if err := store.Import(t.Context(), s, strings.NewReader(text)); !errors.Is(err, store.ErrExport) {
				t.Errorf("%s: %v, want ErrExport", what, err)
			}
			if got := body(export(t, s)); got != "" {
				t.Fatalf("%s: left behind:\n%s", what, got)
			}
		}
		if fault := s.Status().Fault; fault != "" {
			t.Errorf("the store is at fault: %s", fault)
		}
		if err := store.Import(t.Context(), s, iotest.TimeoutReader(strings.NewReader(all))); !errors.Is(err, iotest.ErrTimeout) {
			t.Errorf("Import = %v, want the error of the reader", err)
		}
		if err := store.Import(t.Context(), s, strings.NewReader(all)); err != nil {
			t.Errorf("the complete export: %v", err)
		}
	})
}

// Lines that no store exports, with a matching digest.
func TestAnInconsistentExportIsRefused(t *testing.T) {
	for what, lines := range map[string]string{
		"of no kind":                      `{"kind":"x","group":"g","name":"n"}`,
		"a member that we do not know":    `{"kind":"value","group":"g","name":"n","version":"7","text":"x","more":1}`,
		"a value without a version":       `{"kind":"value","group":"g","name":"n","text":"x"}`,
		"a value without a name":          `{"kind":"value","group":"g","version":"7","text":"x"}`,
		"an entry of no log":              `{"kind":"entry","seq":"1","text":"x"}`,
		"a log of no entries ever":        `{"kind":"log","name":"l","first":"1"}`,
		"a log that ends too early":       `{"kind":"log","name":"l","first":"1","last":"2"}` + "\n" + `{"kind":"entry","seq":"1"}`,
		"a log that ends too early, too":  `{"kind":"log","name":"l","first":"1","last":"1"}` + "\n" + `{"kind":"log","name":"m","first":"2","last":"1"}`,
		"a log that ends too late":        `{"kind":"log","name":"l","first":"2","last":"1"}` + "\n" + `{"kind":"entry","seq":"2"}`,
		"a log with a gap":                `{"kind":"log","name":"l","first":"1","last":"2"}` + "\n" + `{"kind":"entry","seq":"2"}`,
		"an account of no name":           `{"kind":"account","group":"g","settled":"1"}`,
		"an account of less than nothing": `{"kind":"account","group":"g","name":"a","settled":"-1"}`,
		"an account of too much":          `{"kind":"account","group":"g","name":"a","settled":"1125899906842625"}`,
		"a hold of no group":              `{"kind":"hold","name":"h","micros":"9795316400000000"}`,
		"a hold of less than nothing":     `{"kind":"hold","group":"g","name":"h","micros":"9795316400000000","amounts":[{"account":"a","amount":"-1"}]}`,
		"a hold in no account":            `{"kind":"hold","group":"g","name":"h","micros":"9795316400000000","amounts":[{"amount":"1"}]}`,
		"a log twice":                     `{"kind":"log","name":"l","first":"2","last":"1"}` + "\n" + `{"kind":"log","name":"l","first":"2","last":"1"}`,
	} {
		t.Run(what, func(t *testing.T) {
			onEach(t, func(t *testing.T, s store.Store) {
				first := `{"store":"memory","format":1,"at":"2026-11-22T03:00:00Z"}` + "\n" + lines + "\n"
				all := first + fmt.Sprintf(`{"records":%d,"sha256":"%s"}`, strings.Count(lines, "\n")+1, digest(first)) + "\n"
				if err := store.Import(t.Context(), s, strings.NewReader(all)); !errors.Is(err, store.ErrExport) || strings.Contains(err.Error(), "digest") {
					t.Errorf("%v, want ErrExport for another reason than the digest", err)
				}
				if got := body(export(t, s)); got != "" {
					t.Errorf("left behind:\n%s", got)
				}
			})
		})
	}
}

func TestExportReturnsTheErrorOfTheWriter(t *testing.T) {
	onEach(t, func(t *testing.T, s store.Store) {
		add(t, s, "l", strings.Repeat("long", 50_000))
		errBroken := errors.New("broken pipe")
		if err := store.Export(t.Context(), s, writerFunc(func([]byte) (int, error) { return 0, errBroken })); !errors.Is(err, errBroken) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Export = %v, want the error of the writer", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := store.Export(ctx, s, io.Discard); !errors.Is(err, context.Canceled) {
			t.Errorf("Export = %v, want the error of the context", err)
		}
	})
}

func digest(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:])
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
