// Package browser_test drives the page of the admin side with a real browser, Chromium, in front of it, and real OpenID providers behind
// its sign-in: oidc-provider from npm, and zitadel/oidc.
package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/chromedp"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	idpstorage "github.com/zitadel/oidc/v3/example/server/storage"

	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/scratch"
)

func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// findChromium returns the program of the browser.
func findChromium(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("chromium"); err == nil {
		return path
	}
	if os.Getenv("SWITCHBOARD_REQUIRE") == "1" {
		t.Fatal("the page in a real browser: required: chromium is not installed")
	}
	t.Skip("skipped: the page in a real browser (chromium is not installed)")
	return ""
}

// A browser is a Chromium with a profile of its own, and one tab.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// newBrowser starts a browser. The names sb.test and evil.test are this machine to it; rules say more of names and addresses.
func newBrowser(t *testing.T, rules ...string) *browser {
	t.Helper()
	rules = append(rules, "MAP sb.test 127.0.0.1", "MAP evil.test 127.0.0.1")
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(findChromium(t)), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.IgnoreCertErrors, chromedp.DisableGPU, chromedp.Flag("host-resolver-rules", strings.Join(rules, ", ")))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancelTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // and its profile is written no more
		cancelTab()
		cancel()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	return &browser{t, ctx}
}

// do carries actions out.
func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, rig.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%v; the browser shows\n%s", err, b.text())
	}
}

// text returns where the browser is, and what it shows.
func (b *browser) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, rig.Patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + (document.readyState === "complete" ? document.body.innerText : "(it loads)")`))
	if err != nil {
		return err.Error()
	}
	return text
}

// await waits until the browser shows the text.
func (b *browser) await(text string) {
	b.t.Helper()
	b.awaitEither(text)
}

// awaitEither waits until the browser shows one of the texts, and returns it.
func (b *browser) awaitEither(texts ...string) (found string) {
	b.t.Helper()
	rig.Eventually(b.t, fmt.Sprintf("the browser shows %q", texts), func() string {
		shown := b.text()
		for _, text := range texts {
			if strings.Contains(shown, text) {
				found = text
				return ""
			}
		}
		return shown
	})
	return found
}

// press presses the button with the words.
func (b *browser) press(words string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.Search(fmt.Sprintf("//button[contains(., %q)]", words))))
}

// cookies returns the browser's cookies by name.
func (b *browser) cookies() map[string]*network.Cookie {
	b.t.Helper()
	list, err := chromedp.Call(b.ctx, storage.GetCookies, storage.GetCookiesParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	all := map[string]*network.Cookie{}
	for _, c := range list.Cookies {
		all[c.Name] = c
	}
	return all
}

// sessionCookie returns the cookie of the session; nil if there is none.
func (b *browser) sessionCookie() *network.Cookie {
	b.t.Helper()
	for name, c := range b.cookies() {
		if strings.HasPrefix(strings.TrimPrefix(name, "__Host-"), "switchboard") && !strings.Contains(name, "sign-in") {
			return c
		}
	}
	return nil
}

// A provider is an OpenID provider that runs.
type provider struct {
	issuer, client, secret string
	scopes                 string // as the configuration has them
	claim, value           string // of the person who signs in
	subject                string
	signIn                 func(b *browser) // fills in the provider's pages
}

// startNPM starts oidc-provider as a process.
func startNPM(t *testing.T, redirect string) provider {
	t.Helper()
	npmlock.Need(t, "people sign in at oidc-provider")
	cmd := exec.Command("node", "provider.mjs", redirect)
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	var errs strings.Builder
	cmd.Stderr = &errs
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		t.Fatal(err1, err2)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	issuer, err := rig.FirstLine(stdout)
	if err != nil {
		t.Fatalf("%v\n%s", err, &errs)
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	return provider{
		issuer: strings.TrimSpace(issuer), client: "sb", secret: "provider-secret-of-the-test", scopes: "[groups]", claim: "groups", value: "platform", subject: "ann",
		signIn: func(b *browser) {
			if b.awaitEither("Sign-in", "Authorize") == "Sign-in" { // else it knows the browser
				b.do(chromedp.SendKeys(chromedp.CSS(`input[name="login"]`), "ann"), chromedp.SendKeys(chromedp.CSS(`input[name="password"]`), "any"))
				b.press("Sign-in")
			}
			b.press("Continue")
		},
	}
}

var registered sync.Mutex // zitadel/oidc keeps the clients of its example in one place

// startGo starts zitadel/oidc in this process.
func startGo(t *testing.T, redirect string) provider {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	issuer := "http://" + server.Listener.Addr().String()
	client := "go-" + server.Listener.Addr().String()
	registered.Lock()
	idpstorage.RegisterClients(idpstorage.WebClient(client, "provider-secret-of-the-test", redirect))
	kept := idpstorage.NewStorage(idpstorage.NewUserStore(issuer))
	registered.Unlock()
	server.Config.Handler = exampleop.SetupServer(issuer, kept, slog.New(slog.DiscardHandler), false)
	server.Start()
	t.Cleanup(server.Close)
	return provider{
		issuer: issuer, client: client, secret: "provider-secret-of-the-test", scopes: "[email]", claim: "email", value: "test-user@zitadel.ch", subject: "id1",
		signIn: func(b *browser) {
			b.do(chromedp.SendKeys(chromedp.CSS(`input[name="username"]`), "test-user@127.0.0.1"), chromedp.SendKeys(chromedp.CSS(`input[name="password"]`), "verysecure"))
			b.do(chromedp.Submit(chromedp.CSS(`input[name="password"]`)))
		},
	}
}

// A world is a Switchboard, how browsers reach it, and a provider at which people sign in.
type world struct {
	*rig.Gateway
	dir  string
	at   string // the admin address, as browsers show it
	idp  provider
	text string // switchboard.yaml
}

// placeAdmin returns the admin address that browsers see, with the line of switchboard.yaml for it. With TLS, lead says which address is behind.
func placeAdmin(t *testing.T, tls bool) (at, line string, lead func(to string)) {
	t.Helper()
	if !tls {
		address, err := scratch.Addr()
		if err != nil {
			t.Fatal(err)
		}
		return "http://" + address, fmt.Sprintf("admin: {listen: %q}\n", address), func(string) {}
	}
	var target *url.URL
	front := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}})
	t.Cleanup(front.Close)
	address := front.Listener.Addr().String()
	at = "https://sb.test" + address[strings.LastIndex(address, ":"):]
	return at, fmt.Sprintf("admin: {url: %q}\n", at), func(to string) { target, _ = url.Parse(to) }
}

// serve serves a Switchboard, with TLS in front of the admin address or without.
func serve(t *testing.T, tls bool, start func(t *testing.T, redirect string) provider) *world {
	t.Helper()
	findChromium(t)
	at, listen, lead := placeAdmin(t, tls)
	w := &world{at: at}
	if start != nil {
		w.idp = start(t, w.at+"/sign-in/callback")
		listen += fmt.Sprintf("issuers: {idp: {url: %q, sign_in: {id: %q, secret: \"${file:idp.secret}\", scopes: %s}}}\noperators: [{issuer: idp, claim: %s, value: %q}]\n", w.idp.issuer, w.idp.client, w.idp.scopes, w.idp.claim, w.idp.value)
	}
	w.dir = rig.LayOut(t, "-- switchboard.yaml --\n"+listen+"servers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"))+"\n-- idp.secret --\nprovider-secret-of-the-test\n")
	if err := os.Chmod(w.dir+"/idp.secret", 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(w.dir + "/switchboard.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.text = string(text)
	w.Gateway = rig.Serve(t, w.dir)
	lead(w.AdminURL())
	return w
}

// signIn signs a person in, from the start to the page.
func (w *world) signIn(b *browser) {
	b.t.Helper()
	b.do(chromedp.Navigate(w.at + "/"))
	b.press("Sign in at idp")
	w.idp.signIn(b)
	b.await("You are idp/" + w.idp.subject + ", an operator")
}

// openPage opens the address of "switchboard page" in a new browser.
func (w *world) openPage(t *testing.T) (b *browser, address string) {
	t.Helper()
	var opened struct{ URL string }
	if err := json.Unmarshal([]byte(w.Do(0, "", "page", "--json")), &opened); err != nil {
		t.Fatal(err)
	}
	b = newBrowser(t)
	b.do(chromedp.Navigate(opened.URL))
	b.await("You are local, an operator")
	return b, opened.URL
}

// ask sends a request to the admin address with a cookie, as a program that has stolen it.
func (w *world) ask(t *testing.T, c *network.Cookie) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.AdminURL()+"/v1/sessions", nil)
	if err != nil {
		t.Fatal(err)
	}
	if u, _ := url.Parse(w.at); u.Scheme == "https" {
		req.Host = u.Host
	}
	req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestPeopleSignInAndOutAtCertifiedProviders(t *testing.T) {
	for _, tt := range []struct {
		name  string
		tls   bool
		start func(t *testing.T, redirect string) provider
	}{
		{"oidc-provider, on this machine", false, startNPM},
		{"oidc-provider, behind TLS", true, startNPM},
		{"zitadel/oidc, on this machine", false, startGo},
		{"zitadel/oidc, behind TLS", true, startGo},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := serve(t, tt.tls, tt.start)
			b := newBrowser(t)
			w.signIn(b)
			c := b.sessionCookie()
			if c == nil {
				t.Fatal("there is no cookie")
			}
			if !c.HTTPOnly || c.SameSite != network.CookieSameSiteStrict || c.Secure != tt.tls || strings.HasPrefix(c.Name, "__Host-") != tt.tls {
				t.Errorf("the cookie is %+v", c)
			}
			for name := range b.cookies() {
				if strings.Contains(name, "switchboard-sign-in") {
					t.Errorf("%s is left", name)
				}
			}
			if got := w.ask(t, c); got != http.StatusOK {
				t.Errorf("the API answers its session with %d", got)
			}
			b.press("Sign out")
			b.await("Sign in at idp")
			if b.sessionCookie() != nil {
				t.Error("the cookie is left")
			}
			if got := w.ask(t, c); got != http.StatusUnauthorized {
				t.Errorf("after the sign-out, the API answers with %d", got)
			}
			if logged := w.Logged(); strings.Contains(logged, c.Value) || strings.Contains(logged, "provider-secret") {
				t.Error("a secret is in the log output")
			}
		})
	}
}

// The list: a session that an operator ends, and a membership that is lost while signed in.
func TestASessionEndsWhereverItsReasonIsGone(t *testing.T) {
	w := serve(t, false, startNPM)
	b := newBrowser(t)
	w.signIn(b)
	c := b.sessionCookie()

	var all []struct{ ID, Officer string }
	if err := json.Unmarshal([]byte(w.Do(0, "", "sessions", "list", "--json")), &all); err != nil || len(all) != 1 || all[0].Officer != "idp/ann" {
		t.Fatalf("the sessions are %v, %v", all, err)
	}
	w.Do(0, "has ended", "sessions", "end", all[0].ID)
	b.do(chromedp.Reload())
	b.await("you are not signed in, or not any more")
	if got := w.ask(t, c); got != http.StatusUnauthorized {
		t.Errorf("an ended session gets %d", got)
	}

	w.signIn(b)
	c = b.sessionCookie()
	if err := os.WriteFile(w.dir+"/switchboard.yaml", []byte(strings.Replace(w.text, `value: "platform"`, `value: "others"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	w.Reload(t)
	b.do(chromedp.Reload())
	b.await("no row of the configuration gives you an office")
	if got := w.ask(t, c); got != http.StatusForbidden {
		t.Errorf("who has lost the office gets %d", got)
	}
	if err := os.WriteFile(w.dir+"/switchboard.yaml", []byte(w.text), 0o644); err != nil {
		t.Fatal(err)
	}
	w.Reload(t)
	b.do(chromedp.Navigate(w.at + "/"))
	b.await("You are idp/ann, an operator")

	w.Do(0, "is blocked", "person", "block", "idp", "ann", "--reason", "left")
	b.do(chromedp.Reload())
	b.await("an operator has blocked you")
	if got := w.ask(t, c); got != http.StatusForbidden {
		t.Errorf("a blocked person gets %d", got)
	}
	w.Do(0, `idp +ann +local .* left`, "person", "blocked")
	_ = w.Cmd.Process.Kill()
	_ = w.Cmd.Wait()
	again := &world{Gateway: rig.Serve(t, w.dir), at: w.at, idp: w.idp}
	if got := again.ask(t, c); got != http.StatusForbidden {
		t.Errorf("after a restart, a blocked person gets %d", got)
	}
	b.do(chromedp.Navigate(w.at + "/"))
	b.press("Sign out")
	b.await("Sign in at idp")
	b.press("Sign in at idp")
	w.idp.signIn(b)
	b.await("an operator has blocked you")
	if b.sessionCookie() != nil {
		t.Error("a blocked person has a session")
	}
	again.Do(0, "may sign in again", "person", "unblock", "idp", "ann")
	again.signIn(b)
	if receipts, _, _ := rig.Command(t, w.dir, "receipts", "list", "--json"); !strings.Contains(receipts, `"method":"block"`) || !strings.Contains(receipts, `"method":"unblock"`) || !strings.Contains(receipts, `"method":"end_session"`) {
		t.Errorf("the receipts: %s", receipts)
	}
}

// OR-07: a foreign code, a state that is used twice, a cookie that somebody has set before.
func TestOR07NobodyGivesABrowserASession(t *testing.T) {
	w := serve(t, false, startNPM)
	mallory, ann := newBrowser(t), newBrowser(t)

	// Mallory signs in, and learns the address with the code.
	requests := chromedp.Events(mallory.ctx, network.RequestWillBeSent)
	w.signIn(mallory)
	var callback string
	for e, err := range requests {
		if err != nil {
			t.Fatal(err)
		}
		if callback = e.Request.URL; strings.Contains(callback, "/sign-in/callback?") {
			break
		}
	}

	ann.do(chromedp.Navigate(callback)) // a foreign code, and a foreign state
	ann.await("this browser has not started this sign-in")
	if ann.sessionCookie() != nil {
		t.Error("a foreign answer has given Ann a session")
	}
	mallory.press("Sign out")
	mallory.await("Sign in at idp")
	mallory.do(chromedp.Navigate(callback)) // state and code, used twice
	mallory.await("this browser has not started this sign-in")
	if mallory.sessionCookie() != nil {
		t.Error("a state that was used twice has given a session")
	}

	// Mallory has set a cookie in Ann's browser, and knows it.
	w.signIn(mallory)
	theirs := mallory.sessionCookie()
	if _, err := chromedp.Call(ann.ctx, network.SetCookie, network.SetCookieParams{Name: theirs.Name, Value: theirs.Value, URL: w.at + "/"}); err != nil {
		t.Fatal(err)
	}
	ann.do(chromedp.Navigate(w.at + "/"))
	ann.await("You are idp/ann")
	ann.press("Sign out")
	ann.await("Sign in at idp")
	w.signIn(ann)
	if c := ann.sessionCookie(); c == nil || c.Value == theirs.Value {
		t.Errorf("Ann's session has the cookie that Mallory knows: %+v", c)
	}
	if got := w.ask(t, theirs); got != http.StatusUnauthorized {
		t.Errorf("Mallory's cookie gets %d", got)
	}
}

// "switchboard page" signs its user in, once.
func TestTheCommandPageSignsItsUserIn(t *testing.T) {
	w := serve(t, false, nil)
	b, address := w.openPage(t)
	if at, _, _ := strings.Cut(b.text(), "\n"); strings.Contains(at, "code=") {
		t.Errorf("the code stays in the address: %s", at)
	}
	other := newBrowser(t)
	other.do(chromedp.Navigate(address))
	other.await("this code was used")
	if other.sessionCookie() != nil {
		t.Error("a code was good twice")
	}
}
