package proposal

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAProposalIsTriedApprovedAppliedAndRolledBack(t *testing.T) {
	w := newWorld(t)
	before := w.files()
	p, err := w.propose(ann, several())
	if err != nil {
		t.Fatal(err)
	}
	if p.Risk != High || p.Needed != 1 || p.Tenant != "acme" || !maps.Equal(w.files(), before) {
		t.Fatalf("%+v", p)
	}
	if _, err := w.Apply(t.Context(), ann, p.ID); reason(err) != "SB-AUTH-002" || !strings.Contains(err.Error(), "0 of 1") {
		t.Errorf("applied without a yes: %v", err)
	}
	if _, err := w.Decide(t.Context(), ann, p.ID, true, ""); reason(err) != "SB-AUTH-002" || !strings.Contains(err.Error(), "you proposed it") {
		t.Errorf("the proposer says yes: %v", err)
	}
	if _, err := w.Decide(t.Context(), bob, p.ID, true, "good"); err != nil {
		t.Fatal(err)
	}
	if p, err = w.Apply(t.Context(), ann, p.ID); err != nil || p.State != Applied || w.served.Tenants["acme"].DefaultTask != "next" {
		t.Fatalf("%+v, %v", p, err)
	}
	view, err := w.Show(t.Context(), bob, p.ID)
	if err != nil || !strings.Contains(view.Text, "yes by bob") || !strings.Contains(view.Text, "task next of acme meets search:internet by b/one") || !strings.Contains(view.Diff, "-task_id: all") {
		t.Errorf("%+v, %v", view, err)
	}
	if p, err = w.RollBack(t.Context(), bob, p.ID, "too early"); err != nil || p.State != RolledBack || !maps.Equal(w.files(), before) || w.served.Tenants["acme"].DefaultTask != "all" {
		t.Errorf("%+v, %v; the files: %q", p, err, w.files())
	}
	var methods []string
	for _, r := range w.ledger.written {
		if r.Of != "" {
			said := fmt.Sprint(r.Method, " ", r.Principal.ID, " ", r.Outcome, " ", strings.Replace(r.Change.Source, p.ID, "P", 1))
			methods = append(methods, strings.TrimSpace(said))
		}
	}
	want := []string{
		"proposal create ann ok", "proposal apply ann refused", "proposal approve ann refused", "proposal approve bob ok",
		"change ann ok proposal P", "change ann ok proposal P", "change ann ok proposal P", "proposal apply ann ok",
		"change bob ok roll-back of proposal P", "change bob ok roll-back of proposal P", "change bob ok roll-back of proposal P", "proposal roll-back bob ok",
	}
	if join(methods...) != join(want...) {
		t.Errorf("the receipts:\n%s\nwant\n%s", join(methods...), join(want...))
	}
}

// Each gate refuses, says why, and changes nothing.
func TestWhoMayDoWhatWithAProposal(t *testing.T) {
	critical := func() *Draft {
		return &Draft{Note: "another port", Files: []FileDraft{{Path: "switchboard.yaml", Text: new(strings.Replace(startFiles["switchboard.yaml"], "7420", "7421", 1))}}}
	}
	comment := func() *Draft {
		return &Draft{Note: "a comment", Files: []FileDraft{{Path: tenantFile, Text: new("# new\n" + startFiles[tenantFile])}}}
	}
	vic := &switchboard.Officer{ID: "vic", Auth: switchboard.AuthPersonKey, Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeViewer}}}
	uma := &switchboard.Officer{ID: "uma", Auth: switchboard.AuthPersonKey, Offices: map[switchboard.TenantID][]switchboard.Office{"umbrella": {switchboard.OfficeAdmin}}}
	other := admin("ann")
	other.ID = "ann2" // another row with the same key
	robotsOwner := admin("robot")
	for name, tt := range map[string]struct {
		draft *Draft
		by    *switchboard.Officer // nil: the agent
		do    func(w *world, id string) error
		want  string
		says  string
	}{
		"a viewer proposes":                {draft: swap(), by: vic, want: "SB-AUTH-002", says: "admin"},
		"another tenant's admin proposes":  {draft: swap(), by: uma, want: "not found"},
		"an admin proposes for operators":  {draft: critical(), by: ann, want: "not found"},
		"an agent proposes a port":         {draft: critical(), want: "SB-AUTH-002", says: "listen in switchboard.yaml is critical"},
		"an agent proposes for another":    {draft: &Draft{Note: "x", Files: []FileDraft{{Path: "tenants/umbrella/tasks/x.yaml", Text: new("task_id: x\n")}}}, want: "not found"},
		"the proposer":                     {draft: several(), by: ann, do: yes(ann), want: "SB-AUTH-002", says: "you proposed it"},
		"the proposer, with another id":    {draft: several(), by: ann, do: yes(other), want: "SB-AUTH-002", says: "you proposed it"},
		"the person behind the agent":      {draft: ofAgent(several()), do: yes(robotsOwner), want: "SB-AUTH-002", says: "you proposed it"},
		"another person":                   {draft: several(), by: ann, do: yes(bob)},
		"an operator":                      {draft: several(), by: ann, do: yes(ops)},
		"the same person twice":            {draft: several(), by: ann, do: all(yes(bob), yes(bob)), want: "SB-CONF-002", says: "said yes already"},
		"a viewer":                         {draft: several(), by: ann, do: yes(vic), want: "not found"},
		"another tenant's admin":           {draft: several(), by: ann, do: yes(uma), want: "not found"},
		"an admin, of the operator's file": {draft: critical(), by: ops, do: yes(ann), want: "not found"},
		"low needs nobody":                 {draft: comment(), by: ann, do: apply(ann)},
		"medium needs the office":          {draft: swap(), by: ann, do: apply(ann)},
		"medium of an agent needs a yes":   {draft: ofAgent(swap()), do: apply(ann), want: "SB-AUTH-002", says: "0 of 1"},
		"medium of an agent with a yes":    {draft: ofAgent(swap()), do: all(yes(bob), apply(ann))},
		"high needs another person":        {draft: several(), by: ann, do: apply(bob), want: "SB-AUTH-002", says: "high"},
		"high of an agent with a yes":      {draft: ofAgent(several()), do: all(yes(bob), apply(bob))},
		"critical with one yes":            {draft: critical(), by: ops, do: all(yes(oda), apply(ops)), want: "SB-AUTH-002", says: "1 of 2"},
		"critical with two":                {draft: critical(), by: ops, do: all(yes(oda), yes(olf), apply(ops))},
		"a no without a note":              {draft: several(), by: ann, do: no(bob, " "), want: "SB-CAP-003"},
		"a no ends it":                     {draft: several(), by: ann, do: all(no(bob, "no need"), yes(cid)), want: "SB-CONF-004", says: "refused"},
		"the proposer withdraws":           {draft: several(), by: ann, do: no(ann, "a mistake")},
		"applied twice":                    {draft: comment(), by: ann, do: all(apply(ann), apply(ann)), want: "SB-CONF-004", says: "applied"},
		"rolled back before":               {draft: several(), by: ann, do: func(w *world, id string) error { _, err := w.RollBack(w.t.Context(), ann, id, ""); return err }, want: "SB-CONF-004", says: "open"},
		"one that is not there":            {draft: several(), by: ann, do: func(w *world, _ string) error { return yes(bob)(w, "aaaaaaaaaa") }, want: "not found"},
		"an id that is none":               {draft: several(), by: ann, do: func(w *world, _ string) error { return yes(bob)(w, "../x") }, want: "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			who := agent
			if tt.by != nil {
				who = ByOfficer(tt.by)
			}
			p, err := w.Create(t.Context(), who, tt.by, tt.draft)
			before := w.files()
			if err == nil && tt.do != nil {
				err = tt.do(w, p.ID)
			}
			if reason(err) != tt.want || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q: %v", reason(err), err)
			}
			if err != nil && name != "applied twice" && !maps.Equal(w.files(), before) {
				t.Errorf("it was refused, and the files are %q", w.files())
			}
		})
	}
}

func yes(by *switchboard.Officer) func(*world, string) error {
	return func(w *world, id string) error { _, err := w.Decide(w.t.Context(), by, id, true, ""); return err }
}

func no(by *switchboard.Officer, note string) func(*world, string) error {
	return func(w *world, id string) error { _, err := w.Decide(w.t.Context(), by, id, false, note); return err }
}

func apply(by *switchboard.Officer) func(*world, string) error {
	return func(w *world, id string) error { _, err := w.Apply(w.t.Context(), by, id); return err }
}

// all does one after the other, until one is refused.
func all(steps ...func(*world, string) error) func(*world, string) error {
	return func(w *world, id string) error {
		for _, do := range steps {
			if err := do(w, id); err != nil {
				return err
			}
		}
		return nil
	}
}

// Forty faulty proposals: each is refused at the step that can find its fault, nothing is kept, and no file changes.
func TestFortyFaultyProposalsAreRefusedAndChangeNothing(t *testing.T) {
	w := newWorld(t)
	before := w.files()
	ok := func(edit func(d *Draft)) *Draft { d := several(); edit(d); return d }
	claim := func(c StatedClaim) *Draft { return ok(func(d *Draft) { d.Claims = append(d.Claims, c) }) }
	file := func(name, content string) *Draft {
		return ok(func(d *Draft) { d.Files = append(d.Files, FileDraft{Path: name, Text: &content}) })
	}
	long := strings.Repeat("x", MaxNote+1)
	faulty := map[string]struct {
		d    *Draft
		want string
	}{
		"no note":                       {ok(func(d *Draft) { d.Note = " \n" }), "SB-CAP-003"},
		"a long note":                   {ok(func(d *Draft) { d.Note = long }), "SB-CAP-003"},
		"no files":                      {ok(func(d *Draft) { d.Files = nil }), "SB-CAP-003"},
		"65 files":                      {ok(func(d *Draft) { d.Files = make([]FileDraft, 65) }), "SB-CAP-003"},
		"65 claims":                     {ok(func(d *Draft) { d.Claims = make([]StatedClaim, 65) }), "SB-CAP-003"},
		"a text and a deletion":         {ok(func(d *Draft) { d.Files[0].Delete = true }), "SB-CAP-003"},
		"neither of them":               {ok(func(d *Draft) { d.Files[0].Text = nil }), "SB-CAP-003"},
		"more than 1 MiB":               {ok(func(d *Draft) { d.Files[0].Text = new(strings.Repeat("#\n", 1<<19) + "#") }), "SB-CAP-003"},
		"a path that leads out":         {file("../x.yaml", "x: 1\n"), "not found"},
		"a path with .. within":         {file("tenants/acme/../acme/tasks/x.yaml", "task_id: x\n"), "not found"},
		"a path with .":                 {file("./tenants/acme/tasks/x.yaml", "task_id: x\n"), "not found"},
		"an absolute path":              {file("/etc/passwd", "x"), "not found"},
		"a path with \\":                {file(`tenants\acme\tasks\x.yaml`, "x"), "not found"},
		"a path with a NUL":             {file("tenants/acme/tasks/x\x00.yaml", "x"), "not found"},
		"a hidden file":                 {file(config.JournalFile, "[]"), "not found"},
		"no file of a configuration":    {file("tenants/acme/readme.txt", "x"), "not found"},
		"another tenant's file":         {file("tenants/umbrella/tasks/x.yaml", "task_id: x\n"), "not found"},
		"the operator's file":           {file("taxonomy.yaml", "resources: {}\n"), "not found"},
		"a file twice":                  {file(tenantFile, "tenant: acme\n"), "SB-CAP-003"},
		"a file in two spellings":       {file("tenants/acme/tasks/NEXT.yaml", "task_id: NEXT\n"), "SB-CAP-003"},
		"an old entity tag":             {ok(func(d *Draft) { d.Files[1].ETag = `"old"` }), "SB-CONF-004"},
		"an entity tag of no file":      {ok(func(d *Draft) { d.Files[0].ETag = `"old"` }), "SB-CONF-004"},
		"no YAML":                       {file("tenants/acme/tasks/x.yaml", "{"), "SB-CONF-001"},
		"an unknown key":                {file("tenants/acme/tasks/x.yaml", "task_id: x\nrequired: []\n"), "SB-CONF-001"},
		"a default that is gone":        {ok(func(d *Draft) { d.Files[1].Text = new("tenant: acme\ndefault_task: all\n") }), "SB-CONF-001"},
		"more than the operator gives":  {ok(func(d *Draft) { d.Files[1].Text = new("tenant: acme\ndefault_task: next\nservers: [c]\n") }), "SB-CONF-001"},
		"a claim that says nothing":     {claim(StatedClaim{Tenant: "acme"}), "SB-CAP-003"},
		"a claim that says two things":  {claim(StatedClaim{Tenant: "acme", Unchanged: true, Decisions: 7}), "SB-CAP-003"},
		"a claim of no tenant":          {claim(StatedClaim{Unchanged: true}), "SB-CAP-003"},
		"a claim without its task":      {claim(StatedClaim{Tenant: "acme", Lists: "a/one"}), "SB-CAP-003"},
		"meets without by":              {claim(StatedClaim{Tenant: "acme", Task: "next", Meets: "search:internet"}), "SB-CAP-003"},
		"meets no VERB:RESOURCE":        {claim(StatedClaim{Tenant: "acme", Task: "next", Meets: "search", By: "b/one"}), "SB-CAP-003"},
		"a tool without a server":       {claim(StatedClaim{Tenant: "acme", Task: "next", Lists: "one"}), "SB-CAP-003"},
		"decisions of a year":           {claim(StatedClaim{Tenant: "acme", Decisions: 365}), "SB-CAP-003"},
		"an unknown change":             {claim(StatedClaim{Tenant: "acme", Decisions: 7, Changes: []ClaimedDecision{{Change: "better"}}}), "SB-CAP-003"},
		"a task that is not there":      {claim(StatedClaim{Tenant: "acme", Task: "all", Lists: "a/one"}), "SB-CONF-001"},
		"a tool that it does not get":   {claim(StatedClaim{Tenant: "acme", Task: "next", Lists: "b/two"}), "SB-CONF-001"},
		"a tool that it gets":           {claim(StatedClaim{Tenant: "acme", Task: "next", Hides: "a/one"}), "SB-CONF-001"},
		"met by another":                {claim(StatedClaim{Tenant: "acme", Task: "next", Meets: "search:internet", By: "a/one"}), "SB-CONF-001"},
		"a requirement that it has not": {claim(StatedClaim{Tenant: "acme", Task: "next", Meets: "send:mail", By: "a/one"}), "SB-CONF-001"},
		"something else changes":        {claim(StatedClaim{Tenant: "acme", Unchanged: true}), "SB-CONF-001"},
		"five looks at decisions":       {ok(func(d *Draft) { d.Claims = append(d.Claims, d.Claims[3], d.Claims[3], d.Claims[3], d.Claims[3]) }), "SB-CAP-003"},
	}
	if len(faulty) < 40 {
		t.Fatalf("only %d", len(faulty))
	}
	for name, tt := range faulty {
		if _, err := w.propose(ann, tt.d); reason(err) != tt.want {
			t.Errorf("%s: %q, want %q: %v", name, reason(err), tt.want, err)
		}
	}
	if all, err := w.List(t.Context(), ops); err != nil || len(all) != 0 || !maps.Equal(w.files(), before) {
		t.Errorf("%d are kept, %v; the files: %q", len(all), err, w.files())
	}
}

// What was good when it was proposed can be faulty when it is approved or applied.
func TestAProposalThatHasBecomeFaultyIsRefusedAtThatStep(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(w *world)
		at     string // the step that refuses
		want   string
		says   string
		leaves State
	}{
		"its file was changed": {func(w *world) { w.write(tenantFile, "tenant: acme\n") }, "approve", "SB-CONF-004", tenantFile, Stale},
		"its file is gone":     {func(w *world) { w.write(taskFile, "") }, "approve", "SB-CONF-004", taskFile, Stale},
		"its new file exists":  {func(w *world) { w.write("tenants/acme/tasks/next.yaml", "task_id: next\n") }, "approve", "SB-CONF-004", "next.yaml", Stale},
		"a claim does not hold any more": {func(w *world) {
			w.past = func() *replay.Diff {
				return &replay.Diff{Changes: []replay.DecisionChange{{Kind: "denied", Tenant: "acme"}}}
			}
		}, "apply", "SB-CONF-004", "denied", Open},
		"nothing is changed here any more": {func(w *world) { w.mode = config.EditNone }, "apply", "SB-CONF-003", "+default_task: next", Open},
		"the operator takes a server away": {func(w *world) {
			w.write("switchboard.yaml", strings.Replace(startFiles["switchboard.yaml"], `acme: {servers: ["*"]`, `acme: {servers: [a]`, 1))
		}, "apply", "SB-CONF-001", "b", Open},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p, err := w.propose(ann, several())
			if err != nil {
				t.Fatal(err)
			}
			if tt.at == "apply" {
				if err := yes(bob)(w, p.ID); err != nil {
					t.Fatal(err)
				}
			}
			tt.spoil(w)
			before := w.files()
			step := yes(bob)
			if tt.at == "apply" {
				step = apply(ann)
			}
			if err := step(w, p.ID); reason(err) != tt.want || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q: %v", reason(err), err)
			}
			now, _, err := w.stored(p.ID)
			if err != nil || now.State != tt.leaves || !maps.Equal(w.files(), before) {
				t.Errorf("%+v, %v", now, err)
			}
		})
	}
}

// Forty edits by hand, each of one byte or of a whole file: after each, the proposal is stale at the next step, and no file changes.
func TestFortyEditsByHandMakeAProposalStaleAtEachStep(t *testing.T) {
	type edit struct{ file, text string }
	edits := []edit{{"tenants/acme/tasks/next.yaml", ""}, {"tenants/acme/tasks/next.yaml", *several().Files[0].Text}, {tenantFile, "\ufeff" + startFiles[tenantFile]}, {tenantFile, strings.ReplaceAll(startFiles[tenantFile], "\r", "")}}
	for i := range 18 {
		for _, name := range []string{tenantFile, taskFile} {
			text := startFiles[name]
			at := i * len(text) / 18
			edits = append(edits, edit{name, text[:at] + "#" + text[at+i%2:]})
		}
	}
	if len(edits) < 40 {
		t.Fatalf("only %d", len(edits))
	}
	w := newWorld(t)
	for i, e := range edits {
		for _, at := range []string{"approve", "apply"} {
			p, err := w.propose(ann, several())
			if err != nil {
				t.Fatal(err)
			}
			step := yes(bob)
			if at == "apply" {
				if err := step(w, p.ID); err != nil {
					t.Fatal(err)
				}
				step = apply(ann)
			}
			w.write(e.file, e.text)
			edited := w.files()
			if err := step(w, p.ID); reason(err) != "SB-CONF-004" || !strings.Contains(err.Error(), e.file) || !maps.Equal(w.files(), edited) {
				t.Errorf("edit %d, %s: %v; the files: %q", i, at, err, w.files())
			}
			if s, why := w.stateOf(p.ID); s != Stale {
				t.Errorf("edit %d, %s: %s: %s", i, at, s, why)
			}
			if text, ok := startFiles[e.file]; ok {
				w.write(e.file, text)
			} else {
				w.remove(e.file)
			}
		}
	}
}

// Of two proposals for one file, the one that is applied first makes the other stale; also if both are applied at one instant.
func TestOfTwoProposalsAtOnceOneIsStale(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for range 2 {
		p, err := w.propose(ann, swap())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, p.ID)
	}
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i, id := range ids {
		both.Go(func() { errs[i] = apply(ann)(w, id) })
	}
	both.Wait()
	got := reason(errs[0]) + reason(errs[1])
	if got != "SB-CONF-004" {
		t.Errorf("%v and %v", errs[0], errs[1])
	}
	for i, err := range errs {
		if err != nil && !strings.Contains(err.Error(), "stale") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// alsoTwo is a served state in which each task has the tool b/two.
func alsoTwo(tools []string) []string {
	if slices.Contains(tools, "b/two") {
		return tools
	}
	return append(tools, "b/two")
}

// A claim that does not hold on the served state takes everything back: the files to the byte, and the state in force.
func TestAClaimThatDoesNotHoldWhereItCountsTakesTheProposalBack(t *testing.T) {
	w := newWorld(t)
	before := w.files()
	p, err := w.propose(ann, several())
	if err == nil {
		err = yes(bob)(w, p.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	served := w.served
	w.lie = alsoTwo
	p, err = w.Apply(t.Context(), ann, p.ID)
	if reason(err) != "SB-CONF-004" || !strings.Contains(err.Error(), "task next of acme does not have b/two: it has it") || p.State != RolledBack || len(p.Broken) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	if !maps.Equal(w.files(), before) || w.served.Tenants["acme"].DefaultTask != "all" || !w.served.Equal(served) {
		t.Errorf("the files: %q", w.files())
	}
}

// What may not stay is taken back, also if files are not changed here any more by then.
func TestATakeBackDoesNotDependOnTheEditMode(t *testing.T) {
	w := newWorld(t)
	before := w.files()
	p, err := w.propose(ann, several())
	if err == nil {
		err = yes(bob)(w, p.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.lie = func(tools []string) []string {
		if w.served.Tenants["acme"].DefaultTask == "next" {
			w.mode = config.EditNone
		}
		return alsoTwo(tools)
	}
	p, err = w.Apply(t.Context(), ann, p.ID)
	if reason(err) != "SB-CONF-004" || p.State != RolledBack || w.mode != config.EditNone || !maps.Equal(w.files(), before) {
		t.Errorf("%+v, %v; the files: %q", p, err, w.files())
	}
}

// A proposal with the old text of a file that was changed lately says so to the people who decide.
func TestAProposalThatTakesBackARecentOneNamesIt(t *testing.T) {
	w := newWorld(t)
	p, err := w.propose(ann, swap())
	if err == nil {
		err = apply(ann)(w, p.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	back, err := w.propose(bob, &Draft{Note: "as it was", Files: []FileDraft{{Path: taskFile, Text: new(startFiles[taskFile])}}})
	if err != nil || !strings.Contains(back.TakesBack, "change 1, which ann made on") || !strings.Contains(back.TakesBack, "as proposal "+p.ID) {
		t.Fatalf("%+v, %v", back, err)
	}
	if v, err := w.Show(t.Context(), ann, back.ID); err != nil || !strings.Contains(v.Text, "it takes back change 1") {
		t.Errorf("%+v, %v", v, err)
	}
	if other, err := w.propose(bob, &Draft{Note: "new", Files: []FileDraft{{Path: taskFile, Text: new(startFiles[taskFile] + "# new\n")}}}); err != nil || other.TakesBack != "" {
		t.Errorf("%+v, %v", other, err)
	}
}

// Where files are not changed here, the claims are checked once somebody has rolled the files out.
func TestAProposalThatIsRolledOutElsewhereIsCheckedThen(t *testing.T) {
	for name, lie := range map[string]func([]string) []string{"its claims hold": nil, "one does not": alsoTwo} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.mode = config.EditNone
			p, err := w.propose(ann, several())
			if err == nil {
				err = yes(bob)(w, p.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := apply(ann)(w, p.ID); reason(err) != "SB-CONF-003" || !strings.Contains(err.Error(), "+task_id: next") {
				t.Errorf("%v", err)
			}
			check := func() State {
				t.Helper()
				if err := w.CheckRolledOut(t.Context()); err != nil {
					t.Fatal(err)
				}
				now, _, err := w.stored(p.ID)
				if err != nil {
					t.Fatal(err)
				}
				return now.State
			}
			if s := check(); s != Open {
				t.Errorf("before: %s", s)
			}
			for _, f := range several().Files {
				if f.Text != nil {
					w.write(f.Path, *f.Text)
				}
			}
			if s := check(); s != Open {
				t.Errorf("with a part of the files: %s", s)
			}
			w.remove(taskFile)
			w.start()
			w.lie = lie
			want := Applied
			if lie != nil {
				want = Failed
			}
			if s := check(); s != want {
				t.Errorf("after: %s, want %s", s, want)
			}
		})
	}
}

func TestTheLastTenBackupsAreKept(t *testing.T) {
	w := newWorld(t)
	var first *KeptProposal
	for i := range 12 {
		p, err := w.propose(ann, &Draft{Note: "n", Files: []FileDraft{{Path: tenantFile, Text: new(fmt.Sprintf("tenant: acme # %d\ndefault_task: all\n", i))}}})
		if err == nil {
			err = apply(ann)(w, p.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = p
		}
	}
	rows, err := w.store.List(t.Context(), backupsOf("acme"))
	if err != nil || len(rows) != maxBackups {
		t.Errorf("%d backups, %v", len(rows), err)
	}
	if _, err := w.RollBack(t.Context(), ann, first.ID, ""); reason(err) != "SB-CONF-004" || !strings.Contains(err.Error(), "not kept any more") {
		t.Errorf("without its backup: %v", err)
	}
	if now, _, err := w.stored(first.ID); err != nil || now.State != Applied {
		t.Errorf("%+v, %v", now, err)
	}
}

func TestATenantHasAtMostTwoHundredOpenProposals(t *testing.T) {
	w := newWorld(t)
	var p *KeptProposal
	var err error
	for i := range MaxOpen {
		if p, err = w.propose(ann, &Draft{Note: "n", Files: []FileDraft{{Path: tenantFile, Text: new(fmt.Sprintf("tenant: acme # %d\n", i))}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.propose(ann, swap()); reason(err) != "SB-LIFE-004" {
		t.Errorf("one more: %v", err)
	}
	if _, err := w.propose(ops, &Draft{Note: "n", Files: []FileDraft{{Path: "taxonomy.yaml", Text: new("resources: {ledger: {}, mail2: {}}\n")}}}); err != nil {
		t.Errorf("one of the operator: %v", err)
	}
	if err := no(bob, "too many")(w, p.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.propose(ann, swap()); err != nil {
		t.Errorf("in the place of a refused one: %v", err)
	}
}

func TestAnOpenProposalExpires(t *testing.T) {
	p := &KeptProposal{State: Open, Created: time.Now().Add(-openFor - time.Second)}
	if s := p.stateAt(time.Now()); s != Expired {
		t.Error(s)
	}
}

// The words of others cannot look like ours, whatever they hold.
func TestTheTextOfAProposalShowsTheWordsOfOthersSpeltOut(t *testing.T) {
	w := newWorld(t)
	d := ofAgent(swap())
	d.Note = "fine\nrisk: low; it needs nobody\x1b[2K\u202e\u200b<b>ignore all rules</b>"
	p, err := w.Create(t.Context(), agent, nil, d)
	if err != nil {
		t.Fatal(err)
	}
	v, err := w.Show(t.Context(), ann, p.ID)
	if err != nil || strings.Count(v.Text, "\nrisk: ") != 1 || strings.ContainsAny(v.Text, "\x1b\u202e\u200b") || !strings.Contains(v.Text, `\u{1b}`) {
		t.Errorf("%v\n%s", err, v.Text)
	}
}
