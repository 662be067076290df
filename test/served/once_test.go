package served_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// changesOf returns the changes that the history has.
func changesOf(t *testing.T, g *rig.Gateway) (ids []string) {
	t.Helper()
	var list struct{ Changes []struct{ ID string } }
	if err := json.Unmarshal([]byte(g.AskAdmin(t, "", "GET", "/v1/configuration/changes", "").Body), &list); err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Changes {
		ids = append(ids, c.ID)
	}
	return ids
}

// wantAnswer checks the status and the code of an answer, and whether it was given before.
func wantAnswer(t *testing.T, what string, a rig.Answer, status int, code string, again bool) {
	t.Helper()
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(a.Body), &p) // a change has no code either
	if a.Status != status || p.Code != code || (a.Header.Get("Idempotency-Replayed") == "true") != again {
		t.Errorf("%s: %d, given before: %q, %s; want %d %s, %v", what, a.Status, a.Header.Get("Idempotency-Replayed"), a.Body, status, code, again)
	}
}

// A request with a key is carried out once, and its answer is given again: the refusals too, and after a restart.
func TestARequestToTheAdminSideWithAKeyIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	path := changePath(allTask)
	etag := g.AskAdmin(t, keys["admin"], "GET", path, "").Header.Get("ETag")
	text := rig.ReadFile(t, filepath.Join(dir, allTask))
	body := textBody(t, text+"# once\n")
	put := func(g *rig.Gateway, who, key, etag, body string) rig.Answer {
		t.Helper()
		return g.AskAdmin(t, keys[who], "PUT", path, body, "If-Match", etag, "Idempotency-Key", key)
	}
	// A dry run changes nothing, and leaves the key free.
	if a := g.AskAdmin(t, keys["admin"], "PUT", changePath(allTask, "dry_run=true"), body, "Idempotency-Key", "a"); a.Status != http.StatusOK {
		t.Errorf("a dry run: %d %s", a.Status, a.Body)
	}
	first := put(g, "admin", "a", etag, body)
	wantAnswer(t, "the first", first, http.StatusOK, "", false)
	again := put(g, "admin", "a", etag, body)
	wantAnswer(t, "its repeat", again, http.StatusOK, "", true)
	if again.Body != first.Body || again.Header.Get("ETag") != first.Header.Get("ETag") || first.Header.Get("ETag") == "" || again.Header.Get("Content-Type") != first.Header.Get("Content-Type") {
		t.Errorf("the repeat differs: %v %s\nfrom: %v %s", again.Header, again.Body, first.Header, first.Body)
	}
	if got := changesOf(t, g); len(got) != 1 {
		t.Errorf("the changes: %q", got)
	}
	if strings.Contains(first.Body, "# once") {
		t.Errorf("the answer to a change, which is stored, has the text of the file: %s", first.Body)
	}
	wantAnswer(t, "the same, written otherwise", put(g, "admin", "a", etag, " "+strings.Replace(body, ":", " : ", 1)), http.StatusOK, "", true)

	wantAnswer(t, "another body", put(g, "admin", "a", etag, textBody(t, text)), http.StatusUnprocessableEntity, "SB-CAP-006", false)
	wantAnswer(t, "another entity tag", put(g, "admin", "a", first.Header.Get("ETag"), body), http.StatusUnprocessableEntity, "SB-CAP-006", false)
	wantAnswer(t, "another route", g.AskAdmin(t, keys["admin"], "POST", "/v1/configuration/changes/1/revert", "", "Idempotency-Key", "a"), http.StatusUnprocessableEntity, "SB-CAP-006", false)
	// Another officer's key is another key: this one is too late for its entity tag, and stays so.
	wantAnswer(t, "another officer", put(g, "operator", "a", etag, body), http.StatusPreconditionFailed, "SB-CONF-002", false)
	wantAnswer(t, "its repeat", put(g, "operator", "a", etag, body), http.StatusPreconditionFailed, "SB-CONF-002", true)
	wantAnswer(t, "an officer without the office", put(g, "viewer", "a", etag, body), http.StatusForbidden, "SB-AUTH-002", false)
	if got := changesOf(t, g); len(got) != 1 {
		t.Errorf("the changes: %q", got)
	}
	for _, bad := range []string{"", "a b", "ü", strings.Repeat("k", 256)} {
		if a := put(g, "admin", bad, etag, body); a.Status != http.StatusBadRequest {
			t.Errorf("the key %.20q: %d %s", bad, a.Status, a.Body)
		}
	}
	wantAnswer(t, "the longest key", g.AskAdmin(t, keys["operator"], "POST", "/v1/servers/a/disable", `{"reason":"x"}`, "Idempotency-Key", strings.Repeat("~", 255)), http.StatusOK, "", false)
	if a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/status", "", "Idempotency-Key", "a b"); a.Status != http.StatusOK {
		t.Errorf("a read: %d %s", a.Status, a.Body)
	}

	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	g = rig.Serve(t, dir)
	if after := put(g, "admin", "a", etag, body); after.Body != first.Body {
		t.Errorf("after a restart: %d %s", after.Status, after.Body)
	}
	// Who has lost the office does not get the answer again.
	main := filepath.Join(dir, "tenants", "acme", "tenant.yaml")
	rig.ReplaceFile(t, main, strings.Replace(rig.ReadFile(t, main), "offices: [admin]", "offices: [viewer]", 1))
	g.Reload(t)
	wantAnswer(t, "without the office", put(g, "admin", "a", etag, body), http.StatusForbidden, "SB-AUTH-002", false)
}

// holdChanges holds the lock of changes, so that a change waits for at most 5 s, until release.
func holdChanges(t *testing.T, dir string) (release func()) {
	t.Helper()
	f, err := ownfile.Open(filepath.Join(dir, ".switchboard", "change.lock"), os.O_CREATE|os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := ownfile.TryLock(f); !ok {
		t.Fatalf("the lock of changes is taken: %v", err)
	}
	return func() { _ = f.Close() }
}

// race sends a change with a key twice at the same time. It returns the answers, the first one first.
func race(t *testing.T, g *rig.Gateway, key, etag, body string) <-chan rig.Answer {
	t.Helper()
	answers := make(chan rig.Answer, 2)
	admin := g.AdminURL()
	for range 2 {
		go func() {
			r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPut, admin+changePath(allTask), strings.NewReader(body))
			if err != nil {
				panic(err)
			}
			for name, value := range map[string]string{"Authorization": "Bearer " + key, "If-Match": etag, "Idempotency-Key": "raced", "Content-Type": "application/json"} {
				r.Header.Set(name, value)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				answers <- rig.Answer{Body: err.Error()}
				return
			}
			defer func() { _ = resp.Body.Close() }() // it was only read
			text, _ := io.ReadAll(resp.Body)
			answers <- rig.Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(text)}
		}()
	}
	return answers
}

func TestARepeatDuringTheFirstRequestIsRefusedAndAKillLeavesItUnknown(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	read := func(g *rig.Gateway) (etag, text string) {
		t.Helper()
		return g.AskAdmin(t, keys["admin"], "GET", changePath(allTask), "").Header.Get("ETag"), rig.ReadFile(t, filepath.Join(dir, allTask))
	}
	etag, text := read(g)
	body := textBody(t, text+"# one\n")
	release := holdChanges(t, dir)
	again := func(key string) rig.Answer {
		t.Helper()
		return g.AskAdmin(t, keys["admin"], "PUT", changePath(allTask), body, "If-Match", etag, "Idempotency-Key", key)
	}
	// An answer that says that nothing was done leaves the key free.
	for range 2 {
		wantAnswer(t, "while another change is made", again("busy"), http.StatusTooManyRequests, "SB-ROUT-003", false)
	}
	answers := race(t, g, keys["admin"], etag, body)
	late := wait.Receive(t, "the refusal of the repeat", answers)
	wantAnswer(t, "the repeat", late, http.StatusConflict, "SB-CAP-006", false)
	if late.Header.Get("Retry-After") != "1" || !strings.Contains(late.Body, `"retryable":"later"`) {
		t.Errorf("when to ask again: %v %s", late.Header, late.Body)
	}
	release()
	wantAnswer(t, "the first", wait.Receive(t, "the answer", answers), http.StatusOK, "", false)
	wantAnswer(t, "a repeat", again("raced"), http.StatusOK, "", true)
	if got := changesOf(t, g); len(got) != 1 {
		t.Errorf("the changes: %q", got)
	}

	etag, text = read(g)
	body = textBody(t, text+"# two\n")
	release = holdChanges(t, dir)
	answers = race(t, g, keys["operator"], etag, body)
	wantAnswer(t, "the repeat", wait.Receive(t, "the refusal of the repeat", answers), http.StatusConflict, "SB-CAP-006", false)
	g.Signal(t, syscall.SIGKILL)
	_ = g.Cmd.Wait()
	wait.Receive(t, "the end of the first", answers)
	release()
	g = rig.Serve(t, dir)
	rig.Eventually(t, "the lease of the killed process is over", func() string {
		a := g.AskAdmin(t, keys["operator"], "PUT", changePath(allTask), body, "If-Match", etag, "Idempotency-Key", "raced")
		if a.Status != http.StatusConflict || !strings.Contains(a.Body, "SB-EXEC-004") {
			return fmt.Sprintf("%d %s", a.Status, a.Body)
		}
		return ""
	})
	if _, now := read(g); now != text || len(changesOf(t, g)) != 1 {
		t.Errorf("the change was made all the same: %s", now)
	}
	wantAnswer(t, "another request", g.AskAdmin(t, keys["operator"], "PUT", changePath(allTask), textBody(t, text), "If-Match", etag, "Idempotency-Key", "raced"), http.StatusUnprocessableEntity, "SB-CAP-006", false)
	wantAnswer(t, "with a new key", g.AskAdmin(t, keys["operator"], "PUT", changePath(allTask), body, "If-Match", etag, "Idempotency-Key", "new"), http.StatusOK, "", false)
}

// The keys are those of all replicas. While their store is away, nothing is done, and afterwards the same key does it.
func TestEachReplicaKnowsTheKeysOfAdminRequests(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	dir, keys := layOutOfficers(t)
	all, redis := replicate(t, dir, 2)
	ask := func(g *rig.Gateway, what, key, reason string) rig.Answer {
		t.Helper()
		return g.AskAdmin(t, keys["operator"], "POST", "/v1/servers/a/"+what, fmt.Sprintf(`{"reason":%q}`, reason), "Idempotency-Key", key)
	}
	const secret = "Zq7xW4pLk9VtR2mN"
	first := ask(all[0], "enable", secret, secret)
	wantAnswer(t, "the first", first, http.StatusOK, "", false)
	again := ask(all[1], "enable", secret, secret)
	wantAnswer(t, "at another replica", again, http.StatusOK, "", true)
	if again.Body != first.Body {
		t.Errorf("at another replica: %s, want %s", again.Body, first.Body)
	}
	wantAnswer(t, "another reason there", ask(all[1], "enable", secret, "other"), http.StatusUnprocessableEntity, "SB-CAP-006", false)
	// Neither the key nor the request is in the store in clear.
	redis.Do("CONFIG", "SET", "rdbcompression", "no")
	records := 0
	for _, name := range redis.Do("KEYS", "*").([]any) {
		text, _ := redis.Do("DUMP", name).(string)
		if !strings.Contains(fmt.Sprint(name), "once-admin/") {
			continue
		}
		records++
		if strings.Contains(fmt.Sprint(name)+text, secret) || strings.Contains(text, first.Body) {
			t.Errorf("%s has it in clear: %q", name, text)
		}
	}
	if records == 0 {
		t.Error("the store has no record of the key")
	}

	redis.Pause()
	away := ask(all[0], "disable", "b", "x")
	redis.Resume()
	wantAnswer(t, "with the store away", away, http.StatusServiceUnavailable, "SB-ROUT-004", false)
	rig.Eventually(t, "the store is back", func() string {
		if a := ask(all[0], "disable", "b", "x"); a.Status != http.StatusOK {
			return fmt.Sprintf("%d %s", a.Status, a.Body)
		}
		return ""
	})
	wantAnswer(t, "a repeat", ask(all[1], "disable", "b", "x"), http.StatusOK, "", true)
}
