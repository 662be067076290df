package provider

import (
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A Browser is the browser of one person. It keeps cookies, and fills in the pages of Node and of Zitadel.
type Browser struct {
	Client *http.Client // with cookies; it follows no redirects
	Person string       // who signs in at Node; "" means ann
}

// NewBrowser returns a browser without cookies.
func NewBrowser(t testing.TB) *Browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Browser{Client: &http.Client{
		Jar: jar, Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Consent is Consent of a new browser.
func Consent(t testing.TB, address, redirect string) *url.URL {
	t.Helper()
	return NewBrowser(t).Consent(t, address, redirect)
}

// The forms of the pages.
var (
	formTag  = regexp.MustCompile(`(?is)<form\b([^>]*)>(.*?)</form>`)
	inputTag = regexp.MustCompile(`(?is)<input\b([^>]*)>`)
)

// attribute returns an attribute of a tag.
func attribute(tag, name string) string {
	m := regexp.MustCompile(`(?i)\b` + name + `="([^"]*)"`).FindStringSubmatch(tag)
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

// Consent opens the address, signs in, and agrees. It returns the URL at redirect that the authorization server sends the browser to, without
// opening it.
func (b *Browser) Consent(t testing.TB, address, redirect string) *url.URL {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	var form url.Values // nil means GET
	for range 20 {
		method, body := http.MethodGet, io.Reader(nil)
		if form != nil {
			method, body = http.MethodPost, strings.NewReader(form.Encode())
		}
		req, err := http.NewRequestWithContext(t.Context(), method, at.String(), body)
		if err != nil {
			t.Fatal(err)
		}
		if form != nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		resp, err := b.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if next := resp.Header.Get("Location"); next != "" {
			if at, err = at.Parse(next); err != nil {
				t.Fatal(err)
			}
			if form = nil; at.Scheme+"://"+at.Host+at.Path == redirect {
				return at
			}
			continue
		}
		found := formTag.FindSubmatch(page)
		if resp.StatusCode != http.StatusOK || found == nil {
			t.Fatalf("%s answers %s %s", at, resp.Status, page)
		}
		if at, err = at.Parse(attribute(string(found[1]), "action")); err != nil {
			t.Fatal(err)
		}
		form = b.fill(string(found[2]))
	}
	t.Fatalf("the pages do not end: %s", at)
	return nil
}

// fill fills in a form.
func (b *Browser) fill(inputs string) url.Values {
	person := b.Person
	if person == "" {
		person = "ann"
	}
	form := url.Values{}
	for _, tag := range inputTag.FindAllStringSubmatch(inputs, -1) {
		switch name := attribute(tag[1], "name"); name {
		case "":
		case "login":
			form.Set(name, person)
		case "username":
			form.Set(name, "test-user@127.0.0.1")
		case "password":
			form.Set(name, "verysecure")
		default:
			form.Set(name, attribute(tag[1], "value"))
		}
	}
	return form
}
