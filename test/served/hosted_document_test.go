package served_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/test/provider"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// The provider would register Switchboard too: the document comes first. A proxy with the certificate would stand before the admin address; here the provider and
// the browser reach the address itself.
func TestHostedAProviderReadsTheClientDocumentAtTheAdminAddress(t *testing.T) {
	t.Parallel()
	var admin atomic.Pointer[url.URL]
	var read atomic.Int64
	outside := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		read.Add(1)
		r.SetURL(admin.Load())
	}})
	t.Cleanup(outside.Close)
	h := rig.ServeHosted(t, provider.Options{Register: true, Documents: outside.URL})
	text, keys := archiveOfPeople(t, h.Resource, "admin: {url: \"https://sb.example.com\", client_document: true}\n")
	dir := rig.LayOut(t, text)
	g := rig.ServeAtOnce(t, dir)
	connectCatalog(t, dir)
	awaitTools(t, g)
	base, err := url.Parse(g.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	admin.Store(base)

	resp, err := http.Get(outside.URL + "/connect/client.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var document struct {
		ID        string   `json:"client_id"`
		Redirects []string `json:"redirect_uris"`
	}
	const at = "https://sb.example.com/connect/"
	if err := json.NewDecoder(resp.Body).Decode(&document); err != nil || document.ID != at+"client.json" || len(document.Redirects) != 1 || document.Redirects[0] != at+"callback" {
		t.Errorf("the document is %+v, %v", document, err)
	}

	s := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["ann"])
	m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`)
	link := ticketLink.FindString(m.Text())
	if link == "" {
		t.Fatalf("there is no link in %s", m.Raw)
	}
	ada := openAdmin(t, g, "")
	ada.base = "https://sb.example.com"
	ada.Transport = &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", base.Host)
	}}
	ada.post("/sign-in", url.Values{"key": {keys["ada"]}})
	before := read.Load()
	ada.connect(link, "ann")
	if read.Load() == before {
		t.Error("the provider has not read the document")
	}
	if got := askWho(t, s); got != "ann" {
		t.Errorf("whoami answers %q", got)
	}
}
