package proposal

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// approved makes a proposal that can be applied.
func (w *world) approved(d *Draft) *KeptProposal {
	w.t.Helper()
	p, err := w.propose(ann, d)
	if err == nil {
		err = yes(bob)(w, p.ID)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// stateOf returns the stored state of a proposal, with the reason.
func (w *world) stateOf(id string) (State, string) {
	w.t.Helper()
	p, _, err := w.stored(id)
	if err != nil || p == nil {
		w.t.Fatal(p, err)
	}
	return p.State, p.Why
}

// A second process of the same files does not take an application that goes on for one that a kill has interrupted: while the claims are checked, and while it is taken back.
func TestASecondProcessLeavesALiveApplicationAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		lie  func([]string) []string
		want State
	}{"its claims hold": {nil, Applied}, "one does not": {alsoTwo, RolledBack}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.approved(several())
			other := w.another()
			begun, goOn, applied := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			held := false
			w.lie = func(tools []string) []string {
				if !held && w.text("tenants/acme/tasks/next.yaml") != "absent" { // not in the trial
					held = true
					close(begun)
					<-goOn
				}
				if tt.lie != nil {
					tools = tt.lie(tools)
				}
				return tools
			}
			go func() { _, err := w.Apply(context.WithoutCancel(t.Context()), ann, p.ID); applied <- err }()
			<-begun
			short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if err := other.Recover(short); err == nil {
				t.Errorf("the second process has recovered: %v", err)
			}
			cancel()
			if s, why := w.stateOf(p.ID); s != Applying {
				t.Errorf("the second process has made it %s: %s", s, why)
			}
			waits := make(chan error, 1)
			go func() { waits <- other.Recover(t.Context()) }()
			close(goOn)
			if err := <-applied; (err == nil) != (tt.want == Applied) || strings.Contains(fmt.Sprint(err), "somebody else") {
				t.Errorf("the application: %v", err)
			}
			if err := <-waits; err != nil {
				t.Errorf("the recovery after it: %v", err)
			}
			if s, why := w.stateOf(p.ID); s != tt.want {
				t.Errorf("%s: %s", s, why)
			}
		})
	}
}

// An error after the files are in force does not turn into "not applied", and one after the old files are in force does not turn into "not put back".
func TestWhatIsInForceIsSaidAlsoIfItsReceiptCannotBeWritten(t *testing.T) {
	for name, d := range map[string]*Draft{"several files": several(), "one file": swap()} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.approved(d)
			w.unrecorded = true
			got, err := w.Apply(t.Context(), ann, p.ID)
			if err == nil || !strings.Contains(err.Error(), "is in force") {
				t.Errorf("the answer: %v", err)
			}
			if s, why := w.stateOf(p.ID); s != Applied || got.State != Applied || !strings.Contains(why, "is in force") {
				t.Errorf("%s: %s", s, why)
			}
			if w.text(d.Files[0].Path) != *d.Files[0].Text {
				t.Error("the file has another text")
			}
			if _, err = w.RollBack(t.Context(), bob, p.ID, ""); err == nil || !strings.Contains(err.Error(), "is in force") {
				t.Errorf("the answer to the rollback: %v", err)
			}
			if s, why := w.stateOf(p.ID); s != RolledBack || w.text(taskFile) != startFiles[taskFile] {
				t.Errorf("taken back: %s: %s", s, why)
			}
		})
	}
}

// A rollout is judged by no other state than the one that was made from exactly the proposed texts.
func TestARolloutIsCheckedOnlyOnTheStateThatWasMadeFromIt(t *testing.T) {
	w := newWorld(t)
	p := w.approved(several())
	check := func(when string, want State) {
		t.Helper()
		if err := w.CheckRolledOut(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, why := w.stateOf(p.ID); s != want {
			t.Fatalf("%s: %s: %s", when, s, why)
		}
	}
	for _, f := range several().Files {
		if f.Text != nil {
			w.write(f.Path, *f.Text)
		}
	}
	w.remove(taskFile)
	check("the files are not read yet", Open)
	w.write("tenants/acme/tasks/bad.yaml", "{")
	if c, err := w.loadFiles(nil); err != nil || len(c.Faulty) == 0 {
		t.Fatal("no fault: ", err)
	}
	w.start()
	check("a fault keeps the tenant as it was", Open)
	w.remove("tenants/acme/tasks/bad.yaml")
	check("the fault is gone, but the files are not read", Open)
	w.start()
	check("they are in force", Applied)
}

// A trial that takes long holds up no other request.
func TestASlowTrialHoldsUpNoOtherProposal(t *testing.T) {
	w := newWorld(t)
	first := w.approved(several())
	begun, goOn, made := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	slow := true
	w.tried = func(*change.Reading) {
		if slow {
			slow = false
			close(begun)
			<-goOn
		}
	}
	go func() { _, err := w.propose(ann, swap()); made <- err }()
	<-begun
	done := make(chan error, 1)
	go func() {
		_, err := w.propose(bob, swap())
		if err == nil {
			_, err = w.List(t.Context(), ann)
		}
		if err == nil {
			_, err = w.Show(t.Context(), ann, first.ID)
		}
		if err == nil {
			err = no(cid, "no")(w, first.ID)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the others wait for it")
	}
	close(goOn)
	if err := <-made; err != nil {
		t.Error(err)
	}
}

// Of those that have ended, a tenant has a bounded number. The oldest go, with all that belongs to them.
func TestTheOldestEndedProposalsOfATenantAreDropped(t *testing.T) {
	w := newWorld(t)
	begun := time.Now().Add(-time.Hour)
	put := func(n int, tenant switchboard.TenantID, s State) string {
		p := &KeptProposal{ID: fmt.Sprintf("aaaaaa%s", strings.NewReplacer("0", "a", "1", "b", "8", "i", "9", "j").Replace(fmt.Sprintf("%04d", n))), State: s, Tenant: tenant, Created: begun, Files: []TouchedFile{{Path: tenantFile}}}
		p.Changed = begun.Add(time.Duration(n) * time.Second)
		err := w.saveContent(t.Context(), p.ID, &content{})
		if err == nil {
			err = w.shelf.write(t.Context(), Group, p.ID, 0, p, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := w.shelf.write(t.Context(), backupsOf(tenant), p.ID, store.Any, backup{When: begun}, nil); err != nil {
			t.Fatal(err)
		}
		return p.ID
	}
	oldest := put(0, "acme", Refused)
	foreign := put(1, "umbrella", Refused)
	for i := range maxEnded {
		put(2+i, "acme", Stale)
	}
	if _, err := w.propose(ann, swap()); err != nil {
		t.Fatal(err)
	}
	if p, _, err := w.stored(oldest); p != nil || err != nil {
		t.Errorf("the oldest: %+v, %v", p, err)
	}
	for _, group := range []string{groupContent, backupsOf("acme")} {
		rows, err := w.store.List(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row.Name == oldest {
				t.Errorf("%s still has it", group)
			}
		}
	}
	if p, _, err := w.stored(foreign); p == nil || err != nil {
		t.Errorf("another tenant's: %v", err)
	}
	all, err := w.all(t.Context())
	if err != nil || len(all) != 1+maxEnded+1 {
		t.Errorf("%d are kept, %v", len(all), err)
	}
}

// One tenant's applications push out no backup of another.
func TestATenantPushesOutNoBackupOfAnother(t *testing.T) {
	w := newWorld(t)
	text := func(tenant string, n int) *Draft {
		return &Draft{Note: "n", Files: []FileDraft{{Path: "tenants/" + tenant + "/tenant.yaml", Text: new(fmt.Sprintf("tenant: %s # %d\ndefault_task: all\n", tenant, n))}}}
	}
	first, err := w.propose(ops, text("umbrella", 0))
	if err == nil {
		err = apply(ops)(w, first.ID)
	}
	for i := range maxBackups + 2 {
		var p *KeptProposal
		if err == nil {
			p, err = w.propose(ann, text("acme", i))
		}
		if err == nil {
			err = apply(ann)(w, p.ID)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.RollBack(t.Context(), ops, first.ID, ""); err != nil || w.text("tenants/umbrella/tenant.yaml") != startFiles["tenants/umbrella/tenant.yaml"] {
		t.Errorf("%v; %q", err, w.text("tenants/umbrella/tenant.yaml"))
	}
}

// Only open proposals of the proposer whose notes begin so are withdrawn, and each says why.
func TestAProposerWithdrawsItsOwnOpenProposalsOfANote(t *testing.T) {
	w := newWorld(t)
	ids := map[string]string{}
	for name, of := range map[string]struct {
		by   *switchboard.Officer
		note string
	}{"mine": {ann, "dossier x: one"}, "mine again": {ann, "dossier x: two"}, "another note of mine": {ann, "no dossier x: "}, "another's": {bob, "dossier x: one"}, "ended": {ann, "dossier x: three"}} {
		d := swap()
		d.Note = of.note
		p, err := w.propose(of.by, d)
		if err == nil && name == "ended" {
			_, err = w.Decide(t.Context(), bob, p.ID, false, "not so")
		}
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = p.ID
	}
	if err := Withdraw(t.Context(), w.Keeper, ByOfficer(ann), "dossier x: ", "it was begun anew"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"mine": "refused by ann: it was begun anew", "mine again": "refused by ann: it was begun anew", "another note of mine": "open by : ", "another's": "open by : ", "ended": "refused by bob: not so",
	} {
		p, _, err := w.stored(ids[name])
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s by %s: %s", p.State, p.By, p.Why); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	last := w.ledger.written[len(w.ledger.written)-1]
	if last.Method != "proposal refuse" || last.Principal.ID != "ann" || last.Note != "it was begun anew" || last.Outcome != receipt.OK {
		t.Errorf("the last receipt is %+v", last)
	}
}
