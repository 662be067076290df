package store_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// raw returns the value in s under the key, as a program without the secret reads it.
func raw(t testing.TB, s store.Store, k store.Key) store.Value {
	t.Helper()
	v, err := s.Value(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// stand writes bytes into s under the key.
func stand(t testing.TB, s store.Store, k store.Key, data []byte) {
	t.Helper()
	if _, err := s.Apply(t.Context(), store.Change{Group: k.Group, Writes: []store.Write{{Name: k.Name, Was: store.Any, Data: data}}}); err != nil {
		t.Fatal(err)
	}
}

func TestAValueOpensOnlyUnderItsOwnKey(t *testing.T) {
	under := store.NewMemory()
	s := sealed(t, under, "the key")
	home := store.Key{Group: "cache/acme/1", Name: "result"}
	stand(t, s, home, []byte("of acme"))
	there := raw(t, under, home).Data
	if bytes.Contains(there, []byte("acme")) {
		t.Errorf("the stored value is readable: %q", there)
	}
	edited := slices.Clone(there)
	edited[len(edited)-1] ^= 1
	for what, c := range map[string]struct {
		from *store.Sealed
		key  store.Key
		data []byte
	}{
		"in the group of another tenant":   {s, store.Key{Group: "cache/evil/1", Name: "result"}, there},
		"under another name":               {s, store.Key{Group: "cache/acme/1", Name: "other"}, there},
		"where the same letters are split": {s, store.Key{Group: "cache/acme/1r", Name: "esult"}, there},
		"after one bit was changed":        {s, home, edited},
		"after it was cut off":             {s, home, there[:20]},
		"with another secret":              {sealed(t, under, "another"), home, there},
		"where it is not sealed":           {s, home, []byte("of acme")},
		"where it is empty":                {s, home, []byte{}},
	} {
		stand(t, under, c.key, c.data)
		v, err := c.from.Value(t.Context(), c.key)
		if !errors.Is(err, store.ErrUnopened) || v.Data != nil || v.Version == 0 {
			t.Errorf("%s: %+v, %v", what, v, err)
		}
	}
	stand(t, under, home, there)
	if v, err := s.Value(t.Context(), home); err != nil || string(v.Data) != "of acme" {
		t.Errorf("under its own key: %q, %v", v.Data, err)
	}
	if n := s.Status().Unopened; n != 7 { // one was read with another secret, and counted there
		t.Errorf("%d values are counted", n)
	}
}

func TestAnOldValueDoesNotOpenAfterItsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := store.NewMemory()
		defer func() { _ = under.Close() }()
		s, k := sealed(t, under, "the key"), store.Key{Group: "g", Name: "n"}
		if _, err := s.Apply(t.Context(), store.Change{Group: k.Group, Writes: []store.Write{{Name: k.Name, Data: []byte("old"), TTL: time.Hour}}}); err != nil {
			t.Fatal(err)
		}
		old := raw(t, under, k).Data
		for _, c := range []struct {
			after time.Duration
			err   error
		}{{59 * time.Minute, nil}, {5 * time.Minute, nil}, {2 * time.Minute, store.ErrUnopened}} {
			after(c.after)
			stand(t, under, k, old) // without a TTL
			if _, err := s.Value(t.Context(), k); !errors.Is(err, c.err) {
				t.Errorf("%s later: %v, want %v", c.after, err, c.err)
			}
		}
	})
}

func TestPlainGroupsStayAsTheyAre(t *testing.T) {
	under := store.NewMemory()
	s := sealed(t, under, "the key", "servers", "archive/")
	for group, plain := range map[string]bool{"servers": true, "archive/1": true, "servers/1": false, "archive": false, "archives/1": false} {
		k := store.Key{Group: group, Name: "n"}
		stand(t, s, k, []byte("text"))
		if is := string(raw(t, under, k).Data) == "text"; is != plain {
			t.Errorf("%s: plain is %t", group, is)
		}
		if v, err := s.Value(t.Context(), k); err != nil || string(v.Data) != "text" {
			t.Errorf("%s: %q, %v", group, v.Data, err)
		}
	}
}

func TestAListLeavesOutValuesThatDoNotOpen(t *testing.T) {
	under := store.NewMemory()
	s := sealed(t, under, "the key")
	for _, name := range []string{"a", "b", "c"} {
		stand(t, s, store.Key{Group: "g", Name: name}, []byte(name))
	}
	stand(t, under, store.Key{Group: "g", Name: "b"}, raw(t, under, store.Key{Group: "g", Name: "a"}).Data)
	all, err := s.List(t.Context(), "g")
	var got []string
	for _, v := range all {
		got = append(got, v.Name+"="+string(v.Data))
	}
	if want := []string{"a=a", "c=c"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestACheckNamesValuesThatDoNotOpen(t *testing.T) {
	under := store.NewMemory()
	s := sealed(t, under, "the key", "servers")
	stand(t, s, store.Key{Group: "g", Name: "good"}, []byte("x"))
	stand(t, s, store.Key{Group: "servers", Name: "plain"}, []byte("x"))
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	stand(t, under, store.Key{Group: "g", Name: "forged"}, []byte("x"))
	if err := s.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), `1 values do not open`) || !strings.HasSuffix(err.Error(), `"forged" in "g"`) {
		t.Error(err)
	}
}

// An export is readable. It can be imported into another kind of store, and under another secret. A value
// that does not open is exported without its data: its reader refuses it, and does not take it for a missing
// value.
func TestAnExportIsOpenedAndAnImportIsSealed(t *testing.T) {
	under, file, other := store.NewMemory(), store.NewMemory(), store.NewMemory()
	s := sealed(t, under, "the key", "archive/")
	stand(t, s, store.Key{Group: "g", Name: "n"}, []byte("text"))
	stand(t, s, store.Key{Group: "archive/1", Name: "n"}, []byte("plain"))
	stand(t, under, store.Key{Group: "g", Name: "forged"}, []byte("forged"))
	move := func(from, to store.Store) error {
		var b bytes.Buffer
		if err := store.Export(t.Context(), from, &b); err != nil {
			t.Fatal(err)
		}
		return store.Import(t.Context(), to, &b)
	}
	if err := move(s, file); err != nil {
		t.Fatal(err)
	}
	if err := move(file, sealed(t, other, "another", "archive/")); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]store.Store{"in the file": file, "in another Redis": sealed(t, other, "another", "archive/")} {
		for k, want := range map[store.Key]string{{Group: "g", Name: "n"}: "text", {Group: "archive/1", Name: "n"}: "plain", {Group: "g", Name: "forged"}: ""} {
			if v := raw(t, at, k); string(v.Data) != want || v.Version == 0 {
				t.Errorf("%s: %v is %q", name, k, v.Data)
			}
		}
	}
	if got := raw(t, other, store.Key{Group: "g", Name: "n"}).Data; !store.IsSealed(got) {
		t.Errorf("it is not sealed in another Redis: %q", got)
	}
	if err := move(other, sealed(t, store.NewMemory(), "another")); !errors.Is(err, store.ErrExport) {
		t.Errorf("values are sealed twice: %v", err)
	}
}

func TestValuesThatDoNotOpenAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := store.NewMemory()
		defer func() { _ = under.Close() }()
		var log strings.Builder
		s, err := store.NewSealed(under, store.SealOptions{Key: switchboard.NewSecret(strings.Repeat("k", 32)), Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		k := store.Key{Group: "cache/acme/1", Name: "result"}
		stand(t, under, k, []byte("forged"))
		for range 130 {
			_, _ = s.Value(t.Context(), k)
			after(time.Second)
		}
		if n := strings.Count(log.String(), "\n"); n != 3 || !strings.Contains(log.String(), "group=cache/acme/1 since_start=61") || strings.Contains(log.String(), "forged") {
			t.Errorf("%d lines: %s", n, log.String())
		}
	})
}

func TestAKeyOfAnotherLengthIsRefused(t *testing.T) {
	if _, err := store.NewSealed(store.NewMemory(), store.SealOptions{Key: switchboard.NewSecret("short")}); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
}

// With any bytes in the store, a value that opens is a value that was written there.
func FuzzASealedValueOpensAsItWasWritten(f *testing.F) {
	f.Add([]byte("text"), "cache/acme/1", "result", 0, byte(0), []byte("\x00sb1"))
	f.Add([]byte(""), "g", "n", 60, byte(1), bytes.Repeat([]byte("\x00sb1"), 20))
	f.Fuzz(func(t *testing.T, data []byte, group, name string, at int, change byte, forged []byte) {
		under := store.NewMemory()
		s, k := sealed(t, under, "the key"), store.Key{Group: "tenant/acme", Name: "value"}
		stand(t, s, k, data)
		is := raw(t, under, k).Data
		if v, err := s.Value(t.Context(), k); err != nil || !bytes.Equal(v.Data, data) {
			t.Fatalf("%q, %v", v.Data, err)
		}
		stand(t, under, k, forged)
		if v, err := s.Value(t.Context(), k); !errors.Is(err, store.ErrUnopened) || v.Data != nil {
			t.Fatalf("forged: %q, %v", v.Data, err)
		}
		edited := slices.Clone(is)
		edited[uint(at)%uint(len(edited))] ^= change
		stand(t, under, k, edited)
		if v, err := s.Value(t.Context(), k); (err == nil) != (change == 0) || err == nil && !bytes.Equal(v.Data, data) {
			t.Fatalf("edited: %q, %v", v.Data, err)
		}
		other := store.Key{Group: group, Name: name}
		if _, err := under.Apply(t.Context(), store.Change{Group: group, Writes: []store.Write{{Name: name, Was: store.Any, Data: is}}}); err != nil {
			return // no such key
		}
		if v, err := s.Value(t.Context(), other); (err == nil) != (other == k) {
			t.Fatalf("moved to %v: %q, %v", other, v.Data, err)
		}
	})
}

// A still is a store that has one value and costs nothing. It counts its uses.
type still struct {
	store.Store
	value store.Value
	asked int
}

func (s *still) Value(context.Context, store.Key) (store.Value, error) {
	s.asked++
	return s.value, nil
}

func (s *still) Apply(_ context.Context, c store.Change) (store.Version, error) {
	s.asked++
	s.value.Data = c.Writes[0].Data
	return 1, nil
}

// BenchmarkSeal measures the wrapper alone.
func BenchmarkSeal(b *testing.B) {
	k := store.Key{Group: "cache/acme/12345", Name: "result"}
	for _, size := range []struct {
		name  string
		bytes int
	}{{"200B", 200}, {"4KiB", 4 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}} {
		under := &still{value: store.Value{Version: 1}}
		s := sealed(b, under, "the key")
		c := store.Change{Group: k.Group, Writes: []store.Write{{Name: k.Name, Data: make([]byte, size.bytes), TTL: time.Hour}}}
		run := func(name string, f func() error) {
			b.Run(name+"/"+size.name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(size.bytes))
				under.asked = 0
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(under.asked)/float64(b.N), "storeops/op")
			})
		}
		run("write", func() error { _, err := s.Apply(b.Context(), c); return err })
		run("read", func() error { _, err := s.Value(b.Context(), k); return err })
	}
}
