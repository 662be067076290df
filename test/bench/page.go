package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/scratch"
)

// The limits of the page.
const (
	maxFirstView = 120 // KiB, compressed, with the assets
	maxNextView  = 20

	maxPageMemory = 2 // MiB, that an idle Switchboard takes more after the page was opened
)

// pageReads are the addresses of the page that are measured; {name} stands for a value. The first one is that of the view without a query.
var pageReads = map[string][]string{
	"/now":                            {"", "?tenant={tenant}"},
	"/decision":                       {"", "?tenant={tenant}", "?tenant={tenant}&task=look&principal=agent-3", "?tenant={wide}&task=look&principal=agent-3", "?tenant={wide}&task=look&principal=agent-3&without=server-007", "?tenant={tenant}&recorded=", "?tenant={tenant}&record={node}/{entry}"},
	"/ranking":                        {"?tenant={tenant}", "?tenant={wide}", "?tenant={tenant}&draft={draft}", "?tenant={wide}&draft={draft}"},
	"/servers":                        {"", "?after=server-249", "?tenant={tenant}"},
	"/servers/{server}":               {"", "?tenant={tenant}"},
	"/pins":                           {"", "?server={server}", "?state=active&kind=tool"},
	"/pins/one":                       {"?server={server}&kind=tool&name={tool}"},
	"/approvals":                      {"", "?tenant={tenant}"},
	"/approvals/decided":              {""},
	"/approvals/standing":             {""},
	"/receipts":                       {"", "?tenant={tenant}", "?principal=agent-rare", "?tenant={tenant}&outcome=failed", "?tool=find_invoice_007", "?principal=nobody", "?code=SB-EXEC-004"},
	"/receipts/{id}":                  {""},
	"/budgets":                        {"", "?tenant={tenant}"},
	"/tasks":                          {"", "?tenant={tenant}", "?after={wide}+look"},
	"/policies":                       {"?tenant={tenant}", "?tenant={wide}", "?tenant={tenant}&rules=week"},
	"/policies/file":                  {"?tenant={tenant}&path=own.rego"},
	"/try":                            {"?tenant={tenant}"},
	"/capabilities":                   {"?tenant={tenant}", "?tenant={wide}"},
	"/configuration":                  {"", "?tenant={tenant}"},
	"/configuration/changes/{change}": {""},
}

// A pageRead is a GET of the page.
type pageRead struct{ path, what string }

// readsOfPage returns pageReads with their values.
func readsOfPage(values map[string]string) (all []pageRead) {
	var inPath, inQuery []string
	for name, value := range values {
		inPath = append(inPath, "{"+name+"}", value)
		inQuery = append(inQuery, "{"+name+"}", url.QueryEscape(value))
	}
	for path, queries := range pageReads {
		for _, q := range queries {
			filled := strings.NewReplacer(inPath...).Replace(path) + strings.NewReplacer(inQuery...).Replace(q)
			all = append(all, pageRead{filled, path + q})
		}
	}
	slices.SortFunc(all, func(a, b pageRead) int { return strings.Compare(a.what, b.what) })
	return all
}

// A pageBrowser is a browser that is signed in. It takes compressed answers, as they are.
type pageBrowser struct {
	at     string
	client *http.Client
}

// openBrowser signs in as the operator.
func openBrowser(ctx context.Context, side *adminSide) (*pageBrowser, error) {
	var code struct{ Path string }
	_, answer, _, err := side.ask(ctx, http.MethodPost, "/v1/page-codes", struct{}{})
	if err == nil {
		err = json.Unmarshal(answer, &code)
	}
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	w := &pageBrowser{side.at, &http.Client{Jar: jar, Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, ResponseHeaderTimeout: patience}}}
	_, _, _, err = w.get(ctx, code.Path)
	return w, err
}

// get returns the text at a path, its compressed size, and how long the answer took.
func (w *pageBrowser) get(ctx context.Context, path string, header ...string) (text []byte, size int, took time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.at+path, http.NoBody)
	if err != nil {
		return nil, 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience) // else a view that never comes would end no run
	defer cancel()
	r = r.WithContext(ctx)
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Accept-Encoding", "gzip")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	began := time.Now()
	resp, err := w.client.Do(r)
	if err != nil {
		return nil, 0, 0, err
	}
	defer func() { _ = resp.Body.Close() }() // it is read
	text, err = io.ReadAll(resp.Body)
	took, size = time.Since(began), len(text)
	if err == nil && resp.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(text)); err == nil {
			text, err = io.ReadAll(z)
		}
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %.300s", path, resp.Status, text)
	}
	return text, size, took, err
}

var (
	assetForm = regexp.MustCompile(`(?:href|src)="(/assets/[^"#]+)`)
	linkForm  = regexp.MustCompile(`<li><a href="(/[^"?]*)`)
)

// page measures the page of a large installation: every view, and what open pages do to the calls of agents.
func (b *bench) page(ctx context.Context, _ string) error {
	if err := b.weighPage(ctx); err != nil {
		return err
	}
	p, note, stop, err := b.openLarge(ctx)
	if err != nil {
		return err
	}
	defer stop()
	side := &adminSide{note.Admin, note.Operator, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
	values, err := b.furnish(ctx, side)
	if err != nil {
		return err
	}
	values["draft"] = `{"prefer":[{"verb":"read","resource":"fs","servers":["` + values["server"] + `"]}]}`
	w, err := openBrowser(ctx, side)
	if err != nil {
		return err
	}
	if err := b.allViews(ctx, p.pid, w, readsOfPage(values)); err != nil {
		return err
	}
	return b.besidePages(ctx, p, note, side)
}

// weighPage weighs an idle Switchboard without servers, before and after a browser opens the page. The page cannot be switched off.
func (b *bench) weighPage(ctx context.Context) error {
	only := func(at at) float64 { return at(ours) }
	never := b.figure("memory, idle, the page was never opened", "MiB").judge("sb", only)
	more := b.figure("the same, more after the page was opened once", "MiB").judge("sb", only).atMost(maxPageMemory)
	own := b.figure("of that, without pages of files", "MiB").judge("sb", only)
	weigh := func() error {
		admin, err := scratch.Addr()
		if err != nil {
			return err
		}
		key, hash := identity.Mint(identity.PersonPrefix)
		p, err := b.serve(ctx, ours, map[string]string{"switchboard.yaml": fmt.Sprintf("admin: {listen: %q}\noperators: [{key: ops, hash: %q}]\nservers: {}\n", admin, hash)})
		if err != nil {
			return err
		}
		defer p.stop()
		c := &contestant{pid: p.pid}
		resident, private, err := c.weight()
		if err != nil {
			return err
		}
		w, err := openBrowser(ctx, &adminSide{"http://" + admin, key, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
		if err == nil {
			_, _, _, err = w.openFirst(ctx, "/now", map[string]int{})
			w.client.CloseIdleConnections()
		}
		if err != nil {
			return err
		}
		after, privateAfter, err := c.weight()
		never.see(ours, resident/(1<<20))
		more.see(ours, (after-resident)/(1<<20))
		own.see(ours, (privateAfter-private)/(1<<20))
		return err
	}
	for range min(b.rounds, 3) {
		if err := weigh(); err != nil {
			return err
		}
	}
	return nil
}

// A firstView is what a browser without a cache reads for a view, in bytes, compressed: by the ends of the names of its files, ".html" for the view itself.
type firstView map[string]int

func (v firstView) all() (n int) {
	for _, size := range v {
		n += size
	}
	return n
}

// openFirst asks for a view and what it needs. sizes holds the assets that are known.
func (w *pageBrowser) openFirst(ctx context.Context, address string, sizes map[string]int) (v firstView, text []byte, took time.Duration, err error) {
	text, size, took, err := w.get(ctx, address)
	if err != nil {
		return nil, nil, 0, err
	}
	v = firstView{".html": size}
	counted := map[string]bool{}
	for _, m := range assetForm.FindAllSubmatch(text, -1) {
		asset := string(m[1])
		if counted[asset] {
			continue // a browser reads it once
		}
		counted[asset] = true
		if sizes[asset] == 0 {
			if _, sizes[asset], _, err = w.get(ctx, asset); err != nil {
				return nil, nil, 0, err
			}
		}
		v[path.Ext(asset)] += sizes[asset]
	}
	return v, text, took, nil
}

// allViews measures each view twice in every round, as allReads does.
func (b *bench) allViews(ctx context.Context, pid int, w *pageBrowser, reads []pageRead) error {
	only := func(at at) float64 { return at(ours) }
	slowest := b.figure("the slowest first answer of a view", "ms").judge("sb", only)
	first := b.figure("the largest view with its assets, compressed", "KiB").judge("sb", only).atMost(maxFirstView)
	var most time.Duration
	largest := firstView{}
	sizes := map[string]int{}
	for _, r := range reads {
		v, text, took, err := w.openFirst(ctx, r.path, sizes)
		if err != nil {
			return err
		}
		most = max(most, took)
		if v.all() > largest.all() {
			largest = v
		}
		for _, m := range linkForm.FindAllSubmatch(text, -1) {
			if pageReads[string(m[1])] == nil {
				return fmt.Errorf("%s is in the navigation of %s: add it to pageReads, so that it is measured", m[1], r.path)
			}
		}
	}
	slowest.see(ours, milli(most))
	first.see(ours, float64(largest.all())/1024)
	for _, end := range slices.Sorted(maps.Keys(largest)) {
		b.figure("of these, "+end, "KiB").judge("sb", only).see(ours, float64(largest[end])/1024)
	}
	type row struct{ p50, p95, cpu, size *figure }
	rows := make([]row, len(reads))
	for i := range reads {
		what := reads[i].what
		rows[i] = row{b.figure("p50, "+what, "ms"), b.figure("p95, "+what, "ms"), b.figure("CPU, "+what, "ms"), b.figure("compressed, "+what, "KiB")}
		rows[i].p95.judge("sb", only).atMost(maxRead)
		rows[i].p95.compare("sb again / sb", ratio(ours+again, ours))
		rows[i].size.judge("sb", only).atMost(maxNextView)
	}
	for round := range b.rounds {
		began := time.Now()
		for _, i := range rand.New(rand.NewPCG(4, uint64(round))).Perm(len(reads)) {
			for _, name := range []string{ours, ours + again} {
				size := 0
				before, err := cpu(pid)
				if err != nil {
					return err
				}
				n, until := 0, time.Now().Add(asksEach*maxRead*time.Millisecond) // a view within the limit is asked as often as the others
				t := run(1, func(int) (time.Duration, bool, error) {
					if n++; n > asksEach || n > 1 && time.Now().After(until) || ctx.Err() != nil {
						return 0, false, nil
					}
					_, bytes, took, err := w.get(ctx, reads[i].path)
					size = max(size, bytes)
					return took, true, err
				})
				after, err := cpu(pid)
				if err := errors.Join(err, ctx.Err()); err != nil {
					return err
				}
				b.tally(name, t.tally)
				rows[i].cpu.see(name, milli(after-before)/float64(max(t.right, 1)))
				rows[i].p50.see(name, milli(t.at(0.5)))
				rows[i].p95.see(name, milli(t.at(0.95)))
				rows[i].size.see(name, float64(size)/1024)
			}
		}
		fmt.Fprintf(b.log, "bench: page: round %d of %d of the views took %s\n", round+1, b.rounds, time.Since(began).Round(time.Second))
	}
	return nil
}

// pagesOfOne is how many pages a session has open. Switchboard allows 32.
const pagesOfOne = 32

// besidePages measures calls of agents while events happen: twice without a page, and once with many open ones, which read themselves again as browsers do.
func (b *bench) besidePages(ctx context.Context, p *process, note *largeNote, side *adminSide) error {
	var browsers []*pageBrowser
	for i := 0; i < openStreams; i += pagesOfOne {
		w, err := openBrowser(ctx, side)
		if err != nil {
			return err
		}
		browsers = append(browsers, w)
	}
	silent := b.figure(fmt.Sprintf("of %d open pages, those that heard of no change", openStreams), "").judge(paged, func(at at) float64 { return at(paged) }).atMost(0)
	reads := b.figure("how often the open pages read themselves again, all together", "/s").judge(paged, func(at at) float64 { return at(paged) })
	return b.besideFollowers(ctx, p, note, side, paged, func() (func(int), error) {
		ctx, stop := context.WithCancel(ctx)
		began := time.Now()
		var reading sync.WaitGroup
		var read atomic.Int64
		heard := make([]atomic.Int64, openStreams)
		for i := range openStreams {
			resp, err := browsers[i/pagesOfOne].openPage(ctx)
			if err != nil {
				stop()
				return nil, err
			}
			reading.Go(func() {
				defer func() { _ = resp.Body.Close() }() // the end of ctx ends it
				for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
					if !bytes.Equal(lines.Bytes(), []byte("event: changed")) {
						continue
					}
					heard[i].Add(1)
					if _, _, _, err := browsers[i/pagesOfOne].get(ctx, "/now", "HX-Request", "true"); err == nil {
						read.Add(1)
					}
				}
			})
		}
		return func(int) {
			missing := 0
			for began := time.Now(); time.Since(began) < streamPatience; time.Sleep(10 * time.Millisecond) {
				missing = 0
				for i := range heard {
					if heard[i].Load() == 0 {
						missing++
					}
				}
				if missing == 0 {
					break
				}
			}
			stop()
			reading.Wait()
			silent.see(paged, float64(missing))
			reads.see(paged, float64(read.Load())/time.Since(began).Seconds())
		}, nil
	})
}

var liveForm = regexp.MustCompile(`sse-connect="([^"]+)"`)

// openPage opens the view Now, and returns its stream.
func (w *pageBrowser) openPage(ctx context.Context) (*http.Response, error) {
	text, _, _, err := w.get(ctx, "/now")
	if err != nil {
		return nil, err
	}
	m := liveForm.FindSubmatch(text)
	if m == nil {
		return nil, errors.New("the view Now has no stream")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.at+strings.ReplaceAll(string(m[1]), "&amp;", "&"), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := w.client.Do(r)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.Join(fmt.Errorf("the stream of a page: %s", resp.Status), resp.Body.Close())
	}
	return resp, err
}
