package proposal

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Whoever reads the data folder is a person only where no person has a key. There it decides about what an agent without a key proposes, and not about what it proposes itself.
func TestTheReaderOfTheDataFolderIsNoSecondPerson(t *testing.T) {
	w := newWorld(t)
	p, err := w.propose(ann, several())
	if err != nil {
		t.Fatal(err)
	}
	if err := yes(local)(w, p.ID); reason(err) != "SB-AUTH-002" || !strings.Contains(err.Error(), "is no person here") {
		t.Errorf("where persons have keys: %v", err)
	}
	w.write("switchboard.yaml", strings.Replace(startFiles["switchboard.yaml"], "operators:", "# operators:", 1))
	w.start()
	if err := all(yes(local), apply(ann))(w, p.ID); err != nil {
		t.Errorf("where nobody has a key: %v", err)
	}

	keyless := Proposer{ID: switchboard.LocalID, Auth: switchboard.AuthLocal, Agent: true, Tenant: "acme"}
	for name, tt := range map[string]struct {
		who     Proposer
		officer *switchboard.Officer
		manned  bool
		want    string // a part of the refusal; "" is none
	}{
		"of an agent without a key":                           {who: keyless},
		"of an agent without a key, where a person has a key": {who: keyless, manned: true, want: "is no person here"},
		"of its own":                                  {who: ByOfficer(local), officer: local, want: "you proposed it"},
		"of an agent that is the reader itself":       {who: Proposer{ID: local.ID, Auth: local.Auth, Agent: true, Tenant: "acme"}, want: "you proposed it"},
		"of an agent with a key that is called local": {who: Proposer{ID: local.ID, Auth: switchboard.AuthAPIKey, Agent: true, Tenant: "acme"}, want: "you proposed it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if !tt.manned {
				w.write("switchboard.yaml", strings.Replace(startFiles["switchboard.yaml"], "operators:", "# operators:", 1))
				w.start()
			}
			p, err := w.Create(t.Context(), tt.who, tt.officer, ofAgent(several()))
			if err != nil {
				t.Fatal(err)
			}
			err = all(yes(local), apply(local))(w, p.ID)
			if tt.want == "" && err != nil || tt.want != "" && (reason(err) != "SB-AUTH-002" || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("the yes of the reader gave %v", err)
			}
		})
	}
}

// A yes counts when the proposal is applied, and not only when it was said.
func TestTheYesOfAKeyThatIsGoneCountsNoMore(t *testing.T) {
	w := newWorld(t)
	p, err := w.propose(ann, several())
	if err == nil {
		err = yes(bob)(w, p.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.revoked = []string{"bob"}
	if err := apply(ann)(w, p.ID); reason(err) != "SB-AUTH-002" || !strings.Contains(err.Error(), "0 of 1") {
		t.Errorf("%v", err)
	}
	if err := all(yes(cid), apply(ann))(w, p.ID); err != nil {
		t.Errorf("with the yes of another: %v", err)
	}
}
