package canonical_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/canonical"
)

func TestAWriterWritesEachKindOfValue(t *testing.T) {
	w := canonical.NewWriter([]byte("x"))
	w.BeginObject()
	w.Name("a")
	w.BeginList()
	w.Joined("server", "/", `to"ol`)
	w.Int(-1)
	w.Uint(1 << 63)
	w.BeginObject()
	w.EndObject()
	w.BeginList()
	w.EndList()
	w.EndList()
	w.Name("b")
	w.Bool(true)
	w.Name("c")
	w.Raw([]byte(`"raw"`))
	w.Name("d")
	w.Joined()
	w.EndObject()
	const want = `x{"a":["server/to\"ol",-1,9223372036854775808,{},[]],"b":true,"c":"raw","d":""}`
	if got := string(w.Bytes()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAWriterSortsTheMembersOfEachObject(t *testing.T) {
	w := canonical.NewWriter(nil)
	w.BeginObject()
	w.Name("b")
	w.BeginObject()
	for _, name := range []string{"z", "é", "A", ""} {
		w.Name(name)
		w.String(name)
	}
	w.EndObject()
	w.Name("a")
	w.Int(1)
	w.EndObject()
	const want = `{"a":1,"b":{"":"","A":"A","z":"z","é":"é"}}`
	if got := string(w.Bytes()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAWriterWritesTheCanonicalFormOfAnyStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := canonical.NewWriter(nil)
		w.BeginObject()
		for _, name := range rapid.SliceOfDistinct(rapid.String(), rapid.ID).Draw(t, "names") {
			w.Name(name)
			w.Joined(rapid.SliceOf(rapid.String()).Draw(t, "parts")...)
		}
		w.EndObject()
		if form, err := canonical.Append(nil, w.Bytes()); err != nil || string(form) != string(w.Bytes()) {
			t.Fatalf("%v: %s is not in canonical form: %s", err, w.Bytes(), form)
		}
	})
}

func TestAWriterAllocatesNothingForSortedMembers(t *testing.T) {
	buf, id := make([]byte, 0, 1024), strings.Repeat("x", 40)
	if n := testing.AllocsPerRun(100, func() {
		w := canonical.NewWriter(buf)
		w.BeginObject()
		w.Name("id")
		w.Joined(id, "/", id)
		w.Name("n")
		w.Int(7)
		w.EndObject()
	}); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}
