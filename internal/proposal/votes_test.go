package proposal

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Whoever reads the data folder is a person only where no person has a key, and is the person behind an agent of this machine.
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

	w = newWorld(t)
	w.write("switchboard.yaml", strings.Replace(startFiles["switchboard.yaml"], "operators:", "# operators:", 1))
	w.start()
	own := ByAgent(&switchboard.Principal{Tenant: "acme", ID: switchboard.LocalID, Auth: switchboard.AuthLocal})
	p, err = w.Create(t.Context(), own, nil, ofAgent(several()))
	if err != nil {
		t.Fatal(err)
	}
	if err := yes(local)(w, p.ID); reason(err) != "SB-AUTH-002" || !strings.Contains(err.Error(), "you proposed it") {
		t.Errorf("its own agent's: %v", err)
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
