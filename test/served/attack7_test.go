package served_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// An intruder is somebody who can write to the Redis that two replicas share, and who once read what stood there: as much as
// an earlier Switchboard kept in the clear.
type intruder struct {
	*rig.Tenants
	second   *rig.Gateway
	replicas []*rig.Gateway // all of them

	redis store.Store // as it stands there
	known store.Store // what it means
}

const forged = "POISONED"

// intrude serves the archive by two replicas, for the tenants acme and evil. acme has a key for the tasks.
func intrude(t *testing.T, archive string, tasks ...string) *intruder {
	t.Helper()
	redis := redistest.Start(t)
	const secret = "what all replicas know"
	archive = strings.Replace(archive, "-- switchboard.yaml --\n", fmt.Sprintf("-- secret --\n%s\n-- switchboard.yaml --\nstore: %q\n"+
		`cluster: {secret: "${file:secret}", listen: "127.0.0.1:0"}`+"\n", secret, redis.URL()), 1)
	i := &intruder{Tenants: rig.ServeTenants(t, archive, ", result_bytes: 8KiB", map[string]rig.TenantConfig{
		"acme": {Rego: rig.AllowAll, Key: "tasks: [" + strings.Join(append(tasks, "all"), ", ") + "]"}, "evil": {Rego: rig.AllowAll},
	})}
	i.replicas = []*rig.Gateway{i.Gateway}
	i.second = i.join(t)
	open := func() store.Store {
		st, err := store.Open(t.Context(), redis.URL(), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		return st
	}
	i.redis = open()
	known, err := app.SealStore(open(), switchboard.NewSecret(secret), nil)
	if err != nil {
		t.Fatal(err)
	}
	i.known = known
	return i
}

// join adds a replica.
func (i *intruder) join(t *testing.T) *rig.Gateway {
	t.Helper()
	g := rig.Serve(t, i.Dir, "--data", filepath.Join(t.TempDir(), "data"))
	i.replicas = append(i.replicas, g)
	t.Cleanup(func() { rig.StopTogether(i.replicas) })
	return g
}

// asAt opens a client of acme at a replica.
func (i *intruder) asAt(g *rig.Gateway, path string, modern bool) *rig.HTTPSession {
	i.T.Helper()
	return g.Open(i.T, path, modern, "Authorization", "Bearer "+i.Keys["acme"])
}

// all returns the values of the groups that have the words in them.
func (i *intruder) all(t *testing.T, groups, words string) (found []store.Record) {
	t.Helper()
	if err := i.known.Dump(t.Context(), func(r store.Record) error {
		if r.Kind == store.KindValue && strings.HasPrefix(r.Group, groups) && bytes.Contains(r.Value.Data, []byte(words)) {
			found = append(found, r)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// find returns the only one.
func (i *intruder) find(t *testing.T, groups, words string) store.Record {
	t.Helper()
	found := i.all(t, groups, words)
	if len(found) != 1 {
		t.Fatalf("%d values of %s hold %q", len(found), groups, words)
	}
	return found[0]
}

// put puts data in the place of what stands there.
func (i *intruder) put(t *testing.T, at store.Record, data []byte) {
	t.Helper()
	if _, err := i.redis.Apply(t.Context(), store.Change{Group: at.Group, Writes: []store.Write{{Name: at.Name, Was: store.Any, Data: data, TTL: time.Hour}}}); err != nil {
		t.Fatal(err)
	}
}

// sealed is what stands there.
func (i *intruder) sealed(t *testing.T, at store.Record) []byte {
	t.Helper()
	v, err := i.redis.Value(t.Context(), store.Key{Group: at.Group, Name: at.Name})
	if err != nil || v.Version == 0 {
		t.Fatalf("%s/%s: %v", at.Group, at.Name, err)
	}
	return v.Data
}

// forgeries are what somebody without the secret can make of a value with words in it.
func (i *intruder) forgeries(t *testing.T, at store.Record, words, others string) map[string][]byte {
	t.Helper()
	bit := i.sealed(t, at)
	bit = slices.Clone(bit)
	bit[len(bit)-1] ^= 1
	return map[string][]byte{
		"edited":               bytes.ReplaceAll(at.Value.Data, []byte(words), []byte(others)),
		"with one bit changed": bit,
		"empty":                {},
	}
}

// A teller is a server over HTTP that answers its calls with "answer 1", "answer 2", and so on.
type teller struct {
	*fakeserver.Server
	telling sync.Mutex
	n       int
}

func newTeller(t *testing.T, tools ...string) (all *teller, url string) {
	t.Helper()
	all = &teller{Server: fakeserver.New(tools)}
	s := httptest.NewServer(all)
	t.Cleanup(s.Close)
	return all, s.URL + "/mcp"
}

// ServeHTTP implements http.Handler.
func (c *teller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.telling.Lock()
	defer c.telling.Unlock()
	if bytes.Contains(body, []byte(`"tools/call"`)) {
		c.n++
		c.Says = fmt.Sprintf(`{"content":[{"type":"text","text":"answer %d"}]}`, c.n)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.Server.ServeHTTP(w, r)
}

// told is how often it has answered, and the latest answer.
func (c *teller) told() (int, string) {
	c.telling.Lock()
	defer c.telling.Unlock()
	return c.n, fmt.Sprintf("answer %d", c.n)
}

const oneTeller = `-- switchboard.yaml --
cache: {ttl: 10m, bytes: 1GiB}
servers:
  a: {transport: http, url: %q, share: tenant}
TENANTS
-- overlays/a.yaml --
server: a
tools:
  get: {deterministic: true}
`

func TestAttack7AForgedResultIsRefused(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	server, url := newTeller(t, fmt.Sprintf(rig.Tool, "get"))
	i := intrude(t, fmt.Sprintf(oneTeller, url))
	n := 0
	for _, modern := range []bool{false, true} {
		first, second := i.OpenAs("acme", modern), i.asAt(i.second, "/mcp", modern)
		for _, how := range []string{"edited", "with one bit changed", "empty"} {
			n++
			params := fmt.Sprintf(`{"name":"get","arguments":{"n":%d}}`, n)
			genuine := callWith(t, first, params).Text()
			at := i.find(t, "cache/acme/", genuine)
			i.put(t, at, i.forgeries(t, at, genuine, forged)[how])
			m := callWith(t, second, params)
			if _, latest := server.told(); m.Text() != latest || latest == genuine {
				t.Errorf("modern %v, a result that is %s: %s", modern, how, m.Raw)
			}
			if again := callWith(t, first, params); again.Text() != m.Text() || !strings.Contains(string(again.Raw), `"from":"cache"`) {
				t.Errorf("modern %v: after that the result is not kept: %s", modern, again.Raw)
			}
		}
	}
	if !strings.Contains(i.second.Logged(), "a value in the store does not open") {
		t.Error("the log does not say so")
	}
}

func TestAttack7AForgedOutcomeIsNeitherGivenNorReplacedByASecondCall(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	server, url := newTeller(t, fmt.Sprintf(rig.Tool, "post"))
	i := intrude(t, fmt.Sprintf(oneTeller, url))
	for _, modern := range []bool{false, true} {
		first, second := i.OpenAs("acme", modern), i.asAt(i.second, "/mcp", modern)
		for _, how := range []string{"edited", "with one bit changed", "empty"} {
			key := fmt.Sprint(how, modern)
			genuine := once(t, first, key, "post", `{}`).text
			if got := once(t, second, key, "post", `{}`); got.text != genuine || !got.given {
				t.Fatalf("before: %+v", got)
			}
			at := i.find(t, "once/acme/", genuine)
			i.put(t, at, i.forgeries(t, at, genuine, forged)[how])
			for _, s := range []*rig.HTTPSession{first, second} {
				got := once(t, s, key, "post", `{}`)
				if _, latest := server.told(); got.code != "SB-EXEC-004" || latest != genuine {
					t.Errorf("modern %v, an outcome that is %s: %+v; the server's last answer is %s", modern, how, got, latest)
				}
			}
		}
	}
}

func TestAttack7AValueOfOneTenantDoesNotOpenForAnother(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	server, url := newTeller(t, fmt.Sprintf(rig.Tool, "post"))
	i := intrude(t, fmt.Sprintf(oneTeller, url))
	acme, evil := i.OpenAs("acme", true), i.OpenAs("evil", true)
	ofAcme, ofEvil := once(t, acme, "k", "post", `{}`).text, once(t, evil, "k", "post", `{}`).text
	a, e := i.find(t, "once/acme/", ofAcme), i.find(t, "once/evil/", ofEvil)
	inAcme, inEvil := i.sealed(t, a), i.sealed(t, e)
	i.put(t, a, inEvil)
	i.put(t, e, inAcme)
	for who, s := range map[string]*rig.HTTPSession{"acme": acme, "evil": evil, "acme, elsewhere": i.asAt(i.second, "/mcp", false)} {
		if got := once(t, s, "k", "post", `{}`); got.code != "SB-EXEC-004" {
			t.Errorf("%s: %+v", who, got)
		}
	}
	other := once(t, acme, "another", "post", `{}`).text // two keys of one tenant
	i.put(t, i.find(t, "once/acme/", other), inAcme)
	if got := once(t, acme, "another", "post", `{}`); got.code != "SB-EXEC-004" {
		t.Errorf("another key: %+v", got)
	}
	if n, _ := server.told(); n != 3 {
		t.Errorf("the server was called %d times", n)
	}
	i.put(t, a, inAcme)
	if got := once(t, acme, "k", "post", `{}`); got.text != ofAcme || !got.given {
		t.Errorf("where it was written: %+v", got)
	}
}

// twoEchoes has two tasks. The name echo leads to the server good in the one, and to priv in the other.
func twoEchoes(t *testing.T) (archive string, good *rival) {
	t.Helper()
	good, priv := newRival(t, "good", searches("echo", "")), newRival(t, "priv", strings.Replace(searches("fine", ""), "internet", "slack", 1))
	return fmt.Sprintf(`-- switchboard.yaml --
servers:
  good: {transport: http, url: "http://%s/mcp"}
  priv: {transport: http, url: "http://%s/mcp"}
TENANTS
-- tenants/acme/tasks/one.yaml --
task_id: one
required_capabilities: [{verb: search, resource: internet, select: tool, as: echo}]
-- tenants/acme/tasks/two.yaml --
task_id: two
required_capabilities: [{verb: search, resource: slack, select: tool, as: echo}]
`, good.address, priv.address), good
}

func TestAttack7AnEditedRunRunsNoOtherTool(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	archive, _ := twoEchoes(t)
	i := intrude(t, archive, "one", "two")
	never, _ := i.asAt(i.second, "/mcp/runs/"+strings.Repeat("0", 32), true).Ask(t, "tools/list", "")
	for _, how := range []string{"edited", "with one bit changed", "empty"} {
		id := rig.MintRun(t, i.Gateway, i.Keys["acme"], "one")
		at := i.find(t, "runs/acme/", `"task":"one"`)
		if at.Name != "run/"+id {
			t.Fatalf("the run stands under %s", at.Name)
		}
		i.put(t, at, i.forgeries(t, at, `"task":"one"`, `"task":"two"`)[how])
		there := i.asAt(i.second, "/mcp/runs/"+id, true)
		if m, _ := there.Ask(t, "tools/list", ""); string(m.Raw) != string(never.Raw) {
			t.Errorf("a run that is %s: its list is %s, and that of no run %s", how, m.Raw, never.Raw)
		}
		if got := calls(t, there, "echo"); got == "served by priv" || got == "served by good" {
			t.Errorf("a run that is %s: echo is %s", how, got)
		}
		here := i.asAt(i.Gateway, "/mcp/runs/"+id, true)
		if got := calls(t, here, "echo"); got != "served by good" {
			t.Errorf("a run that is %s, where it was minted: echo says %s", how, got)
		}
		if err := i.delete(t, at); err != nil {
			t.Fatal(err)
		}
	}
}

// delete deletes what stands there.
func (i *intruder) delete(t *testing.T, at store.Record) error {
	t.Helper()
	_, err := i.redis.Apply(t.Context(), store.Change{Group: at.Group, Writes: []store.Write{{Name: at.Name, Was: store.Any}}})
	return err
}

func TestAttack7AnEditedTableOfNamesRunsNoOtherTool(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OneDecision)
	for how, edit := range map[string]*strings.Replacer{
		"swapped":              strings.NewReplacer(`"server":"good","tool":"echo"`, `"server":"priv","tool":"fine"`, `"server":"priv","tool":"fine"`, `"server":"good","tool":"echo"`),
		"renamed":              strings.NewReplacer(`"name":"fine"`, `"name":"gone"`),
		"with one bit changed": nil,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			archive, _ := twoEchoes(t)
			i := intrude(t, archive)
			// Both names stand in the list of the task all. The table of the client says what each of them is.
			if got := rig.ListNames(t, i.OpenAs("acme", true)); !slices.Contains(got, "echo") || !slices.Contains(got, "fine") || slices.Contains(got, "gone") {
				t.Fatalf("the list is %q", got)
			}
			at := i.find(t, "run-seen/", `"name":"echo"`)
			data := i.forgeries(t, at, "", "")[how]
			if edit != nil {
				data = []byte(edit.Replace(string(at.Value.Data)))
			}
			i.put(t, at, data)
			there := i.asAt(i.second, "/mcp", true)
			for name, right := range map[string]string{"echo": "served by good", "fine": "served by priv", "gone": ""} {
				if got := calls(t, there, name); strings.HasPrefix(got, "served by") && got != right {
					t.Errorf("%s is %s", name, got)
				}
			}
			awaits(t, "a client that was told", there, "echo", "served by good")
		})
	}
}

func TestAttack7AnEditedSessionGoesOnWithNoOtherRun(t *testing.T) {
	t.Parallel()
	archive, _ := twoEchoes(t)
	i := intrude(t, archive, "one", "two")
	s := i.asAt(i.Gateway, "/mcp/tasks/one", false)
	if got := calls(t, s, "echo"); got != "served by good" {
		t.Fatalf("echo says %s", got)
	}
	at := i.find(t, "sessions/acme/", `"home":`)
	var kept map[string]any
	if err := json.Unmarshal(at.Value.Data, &kept); err != nil {
		t.Fatal(err)
	}
	kept["run"], kept["home"] = rig.MintRun(t, i.Gateway, i.Keys["acme"], "two"), "gone"
	edited, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	i.put(t, at, edited)
	i.Signal(t, syscall.SIGKILL)
	s.URL = i.second.URL + "/mcp/tasks/one"
	m, resp := s.Post(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"query":"x"}}}`, nil)
	if resp.StatusCode != http.StatusNotFound || strings.Contains(string(m.Raw), "served by") {
		t.Errorf("%s: %s", resp.Status, m.Raw)
	}
	if got := calls(t, i.asAt(i.second, "/mcp/tasks/one", false), "echo"); got != "served by good" {
		t.Errorf("a new session: %s", got)
	}
}

func TestAttack7AForgedPreviewIsNotRead(t *testing.T) {
	t.Parallel()
	const genuine = "the genuine text "
	url := rig.ServeResult(t, "look", "", `{"content":[{"type":"text","text":"`+strings.Repeat(genuine, 5_000)+`"}]}`)
	i := intrude(t, fmt.Sprintf("-- switchboard.yaml --\nservers:\n  a: {transport: http, url: %q}\nTENANTS\n", url))
	for _, modern := range []bool{false, true} {
		for _, how := range []string{"edited", "with one bit changed", "empty"} {
			s := i.OpenAs("acme", modern)
			m := callWith(t, s, `{"name":"look","arguments":{}}`)
			handle := longOf(t, m).Meta.Preview.Handle
			if handle == "" {
				t.Fatalf("no preview: %.300s", m.Raw)
			}
			read := fmt.Sprintf(`{"name":"switchboard_read","arguments":{"handle":%q}}`, handle)
			if m := callWith(t, s, read); !strings.Contains(m.Text(), genuine) {
				t.Fatalf("before: %.300s", m.Raw)
			}
			at := i.find(t, "results/acme/", handle) // the index
			v, err := i.known.Value(t.Context(), store.Key{Group: at.Group, Name: handle})
			if err != nil {
				t.Fatal(err)
			}
			kept := at
			kept.Name, kept.Value = handle, v
			i.put(t, kept, i.forgeries(t, kept, genuine, forged)[how])
			if m := callWith(t, s, read); rig.Code(m) != "SB-CAP-003" || strings.Contains(string(m.Raw), forged) {
				t.Errorf("modern %v, a preview that is %s: %.300s", modern, how, m.Raw)
			}
			i.put(t, at, i.forgeries(t, at, handle, forged)[how]) // the next result is kept all the same
			if m := callWith(t, s, `{"name":"look","arguments":{}}`); longOf(t, m).Meta.Preview.Handle == "" {
				t.Errorf("modern %v, an index that is %s: %.300s", modern, how, m.Raw)
			}
			if err := errors.Join(i.delete(t, at), i.delete(t, kept)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAttack7AForgedOfferIsNotListed(t *testing.T) {
	t.Parallel()
	archive, good := twoEchoes(t)
	i := intrude(t, archive, "one", "two")
	var at store.Record
	rig.Eventually(t, "the offer of good is kept", func() string {
		_ = i.known.Dump(context.Background(), func(r store.Record) error {
			if r.Kind == store.KindValue && r.Group == "offers" && r.Name == "good" {
				at = r
			}
			return nil
		})
		if at.Name == "" {
			return "not yet"
		}
		return ""
	})
	good.kill()
	var offer map[string]any
	if err := json.Unmarshal(unzip(t, at.Value.Data), &offer); err != nil {
		t.Fatal(err)
	}
	offer["Offer"].(map[string]any)["Tools"] = [][]byte{[]byte(strings.Replace(searches("echo", ""), "query", forged, 1))}
	var edited bytes.Buffer
	z := gzip.NewWriter(&edited)
	if err := errors.Join(json.NewEncoder(z).Encode(offer), z.Close()); err != nil {
		t.Fatal(err)
	}
	genuine := i.sealed(t, at)
	for what, c := range map[string]struct {
		data []byte
		want bool
	}{"genuine": {genuine, true}, "edited": {edited.Bytes(), false}} {
		i.put(t, at, c.data)
		g := i.join(t)
		list := listBytes(t, i.asAt(g, "/mcp", true))
		if strings.Contains(list, forged) || strings.Contains(list, `"echo"`) != c.want {
			t.Errorf("by an offer that is %s the list is %s", what, list)
		}
	}
}

func unzip(t *testing.T, data []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What an operator needs: the check names what was forged, an export goes on without it, and neither needs more than the
// configuration.
func TestAttack7AnOperatorFindsWhatWasForged(t *testing.T) {
	t.Parallel()
	_, url := newTeller(t, fmt.Sprintf(rig.Tool, "post"))
	i := intrude(t, fmt.Sprintf(oneTeller, url))
	genuine := once(t, i.OpenAs("acme", true), "k", "post", `{}`).text
	if out, errs, code := rig.Command(t, i.Dir, "store", "check"); code != 0 {
		t.Fatalf("before: %d %s %s", code, out, errs)
	}
	at := i.find(t, "once/acme/", genuine)
	stands := i.sealed(t, at)
	if bytes.Contains(stands, []byte("answer")) || bytes.Contains(stands, []byte("post")) {
		t.Errorf("whoever reads Redis reads %q", stands)
	}
	if out, errs, code := rig.Command(t, i.Dir, "store", "export", "-"); code != 0 || !strings.Contains(out, genuine) {
		t.Errorf("the export: %d %s %s", code, out, errs)
	}
	i.put(t, at, i.forgeries(t, at, genuine, forged)["edited"])
	if out, errs, code := rig.Command(t, i.Dir, "store", "check"); code != 1 || !strings.Contains(out, `1 values do not open with cluster.secret, and are not used; among them "claim" in "once/acme/`) {
		t.Errorf("the check: %d %s %s", code, out, errs)
	}
	if out, errs, code := rig.Command(t, i.Dir, "store", "export", "-"); code != 0 || strings.Contains(out, forged) {
		t.Errorf("the export, then: %d %s %s", code, out, errs)
	}
	where := i.redis.Status().Where
	for _, args := range [][]string{{"export", "--store", where, "-"}, {"import", "--store", where, filepath.Join(i.Dir, "secret")}} {
		if out, errs, code := rig.Command(t, i.Dir, append([]string{"store"}, args...)...); code != 2 || !strings.Contains(errs, "--config") {
			t.Errorf("%s without the secret: %d %s %s", args[0], code, out, errs)
		}
	}
}

func TestAttack7ValidateAndStatusWarnOfARedisThatAnybodyCanUse(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	_, port, _ := strings.Cut(redis.Addr, ":")
	const servers = "servers:\n  a: {transport: stdio, command: [BIN, sample, nimbus-search]}\n"
	for where, warned := range map[string]bool{"127.0.0.1": false, "0.0.0.0": true} { // both lead there, and one is a name of loopback alone
		dir := rig.LayOut(t, fmt.Sprintf("-- secret --\nwhat all replicas know\n-- switchboard.yaml --\nstore: \"redis://%s:%s\"\n"+
			"cluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\n%s", where, port, servers))
		_, valid, code := rig.Command(t, dir, "validate")
		if code != 0 {
			t.Fatalf("validate: %d %s", code, valid)
		}
		g := rig.Serve(t, dir)
		t.Cleanup(func() { rig.StopTogether([]*rig.Gateway{g}) })
		status, errs, code := rig.Command(t, dir, "status", "--url", g.URL)
		if code != 0 {
			t.Errorf("status: %d %s", code, errs)
		}
		for what, said := range map[string]string{"validate": valid, "status": status} {
			for _, lack := range []string{"without a password", "without TLS"} {
				line := fmt.Sprintf("warning: switchboard.yaml:1:8: store: Redis at %q is used %s", where+":"+port, lack)
				if strings.Contains(said, line) != warned {
					t.Errorf("%s of a Redis at %s says %s", what, where, said)
				}
			}
		}
	}
}

// What no seal prevents, and docs/threats.md says: an old value opens under its own key, and what is deleted is not missed.
func TestAttack7AnOldValueThatIsPutBackDoesWhatTheDocsSay(t *testing.T) {
	t.Parallel()
	server, url := newTeller(t, fmt.Sprintf(rig.Tool, "get"), fmt.Sprintf(rig.Tool, "post"))
	i := intrude(t, fmt.Sprintf(oneTeller, url))
	s := i.OpenAs("acme", true)
	old := callWith(t, s, `{"name":"get","arguments":{}}`).Text()
	at := i.find(t, "cache/acme/", old)
	sealed := i.sealed(t, at)
	if err := i.delete(t, at); err != nil {
		t.Fatal(err)
	}
	if now := callWith(t, s, `{"name":"get","arguments":{}}`).Text(); now == old {
		t.Fatalf("it is not called again: %s", now)
	}
	i.put(t, at, sealed)
	if got := callWith(t, s, `{"name":"get","arguments":{}}`).Text(); got != old {
		t.Errorf("an old result: %s", got)
	}

	first := once(t, s, "k", "post", `{}`)
	at = i.find(t, "once/acme/", first.text)
	sealed = i.sealed(t, at)
	if err := i.delete(t, at); err != nil {
		t.Fatal(err)
	}
	again := once(t, s, "k", "post", `{}`)
	if _, latest := server.told(); again.given || again.text != latest {
		t.Errorf("without its outcome: %+v", again)
	}
	i.put(t, at, sealed)
	if got := once(t, s, "k", "post", `{}`); !got.given || got.text != first.text {
		t.Errorf("an old outcome: %+v", got)
	}
}
