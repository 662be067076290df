package vault

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// FuzzOpen opens any bytes as a row and as a ticket: only what was sealed for the name opens, and nothing panics.
func FuzzOpen(f *testing.F) {
	s, err := newSealer([]switchboard.Secret{switchboard.NewSecret("the first key of two"), switchboard.NewSecret("the second key of two")})
	if err != nil {
		f.Fatal(err)
	}
	o := Owner{Tenant: "acme", Person: "idp/ann", Server: "tracker", Resource: "https://tracker.example/mcp"}
	name := o.rowName()
	sealed, err := s.sealRow(name, &connectionRow{consent: 7, count: 3, Owner: o, State: stateReady, Tokens: 1, Access: "a", Grant: "g"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed, name)
	f.Add(sealed, "another name")
	f.Add(sealed[:len(sealed)-1], name)
	f.Add([]byte(rowMagic), name)
	f.Add(s.seal(kindTicket, name, nil, []byte("{}")), name)
	f.Add(s.seal(kindConnection, name, sealed[:rowHead], []byte("not JSON")), name)
	f.Fuzz(func(t *testing.T, data []byte, as string) {
		r, key, err := s.openRow(as, data)
		switch {
		case err != nil:
		case as != name: // another process of the fuzzer seals the same row with another nonce
			t.Errorf("%x opens as %q", data, as)
		case key != 0 || r.consent != 7 || r.count != 3 || r.Access != "a":
			t.Errorf("it opens as %d.%d with key %d", r.consent, r.count, key)
		}
		if _, _, ok := s.open(kindTicket, as, 0, data); ok && as != name {
			t.Errorf("%x opens as ticket %q", data, as)
		}
	})
}

func TestNoTwoOwnersHaveOneRow(t *testing.T) {
	names := map[string]Owner{}
	parts := []string{"", "a", "b", "ab", "a\x00", "\x00a", "a/b"}
	for _, tenant := range parts {
		for _, person := range parts {
			for _, server := range parts {
				for _, resource := range parts {
					o := Owner{switchboard.TenantID(tenant), person, switchboard.ServerID(server), resource}
					if was, taken := names[o.rowName()]; taken {
						t.Errorf("%q and %q", was, o)
					}
					names[o.rowName()] = o
				}
			}
		}
	}
}

func TestTheMemoryOfARowOnlyGoesForward(t *testing.T) {
	var m memory
	for i, step := range []struct {
		consent, count uint64
		ok             bool
	}{{1, 1, true}, {1, 3, true}, {1, 3, true}, {1, 2, false}, {2, 1, true}, {1, 9, false}, {2, 1, true}, {3, 1, true}, {2, 2, false}, {1, 1, false}, {3, 2, true}} {
		if got := m.accept(step.consent, step.count); got != step.ok {
			t.Errorf("step %d: accept(%d, %d) = %t", i, step.consent, step.count, got)
		}
	}
	m.end()
	m.end()
	if m.accept(3, 5) {
		t.Error("a row that was deleted is accepted")
	}
}

func TestATextOpensOnlyAsItWasSealed(t *testing.T) {
	s, err := newSealer([]switchboard.Secret{switchboard.NewSecret("the only key there is")})
	if err != nil {
		t.Fatal(err)
	}
	sealed := s.seal(kindTicket, "name", []byte("head"), []byte("text"))
	if text, _, ok := s.open(kindTicket, "name", 4, sealed); !ok || string(text) != "text" {
		t.Fatalf("it opens as %q %t", text, ok)
	}
	other := append([]byte("dead"), sealed[4:]...)
	for what, opens := range map[string]func() bool{
		"kind":     func() bool { _, _, ok := s.open(kindConnection, "name", 4, sealed); return ok },
		"name":     func() bool { _, _, ok := s.open(kindTicket, "eman", 4, sealed); return ok },
		"head":     func() bool { _, _, ok := s.open(kindTicket, "name", 4, other); return ok },
		"boundary": func() bool { _, _, ok := s.open(kindTicket, "nameh", 3, sealed[1:]); return ok },
	} {
		if opens() {
			t.Errorf("it opens with another %s", what)
		}
	}
}
