package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/test/large"
	"github.com/summit-switchboard/switchboard/test/openapi"
)

// What the part "admin" adds to the installation through a running Switchboard.
const (
	adminRuns     = 200
	adminSessions = 50
	adminBlocks   = 100
	adminChanges  = 10 // each is a reload
	adminTenant   = 42 // the tenant that reads ask about
	asksEach      = 40 // times that a read is asked in a turn; the second slowest is its p95 then
	maxRead       = 50 // ms
)

// An adminSide is the admin API of a Switchboard.
type adminSide struct {
	at, key string
	client  *http.Client
}

// ask sends a request, and returns the whole answer and how long that took.
func (a *adminSide) ask(ctx context.Context, method, path string, body any, header ...string) (resp *http.Response, text []byte, took time.Duration, err error) {
	var send io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, nil, 0, err
		}
		send = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, a.at+path, send)
	if err != nil {
		return nil, nil, 0, err
	}
	r.Header.Set("Authorization", "Bearer "+a.key)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	began := time.Now()
	if resp, err = a.client.Do(r); err != nil {
		return nil, nil, 0, err
	}
	defer func() { _ = resp.Body.Close() }() // it is read
	text, err = io.ReadAll(resp.Body)
	took = time.Since(began)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s %.300s", method, path, resp.Status, text)
	}
	return resp, text, took, err
}

// read decodes the answer of a GET into v.
func (a *adminSide) read(ctx context.Context, path string, v any) error {
	_, text, _, err := a.ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// admin measures the admin side of a large installation: every read, the start, and what open streams of events do to the calls of agents.
func (b *bench) admin(ctx context.Context, _ string) error {
	p, note, stop, err := b.openLarge(ctx)
	if err != nil {
		return err
	}
	defer stop()
	only := func(at at) float64 { return at(ours) }
	side := &adminSide{note.Admin, note.Operator, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
	values, err := b.furnish(ctx, side)
	if err != nil {
		return err
	}
	reads, err := adminReads(openapi.Operations(), values)
	if err != nil {
		return err
	}
	if err := b.allReads(ctx, p.pid, side, reads); err != nil {
		return err
	}
	resident, _, err := memory(p.pid)
	if err != nil {
		return err
	}
	b.figure("memory after all reads, large", "MiB").judge("sb", only).see(ours, float64(resident)/(1<<20))
	return b.besideStreams(ctx, p, note, side)
}

// openLarge starts the servers of the large installation, and Switchboard with runs of all tenants.
func (b *bench) openLarge(ctx context.Context) (p *process, note *largeNote, stop func(), err error) {
	dir, note, strike, err := b.serveLarge(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if note.Took > 0 {
		b.figure(fmt.Sprintf("time to write %d receipts", b.size.Receipts), "s").judge("sb", func(at at) float64 { return at(ours) }).see(ours, note.Took.Seconds())
	}
	if p, err = b.startLarge(ctx, dir, "first start"); err == nil {
		p.stop()
		p, err = b.startLarge(ctx, dir, "later start")
	}
	if err != nil {
		strike()
		return nil, nil, nil, err
	}
	stop = func() { p.stop(); strike() }
	if err := b.openRuns(p, note); err != nil {
		stop()
		return nil, nil, nil, err
	}
	return p, note, stop, nil
}

// startLarge starts Switchboard with the large installation, and measures the time until all servers have listed their tools, and its cost.
func (b *bench) startLarge(ctx context.Context, dir, which string) (*process, error) {
	only := func(at at) float64 { return at(ours) }
	p, err := start(ctx, dir, b.binaries[ours], "serve", "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	listening := time.Since(p.began)
	fail := func(err error) (*process, error) {
		p.stop()
		return nil, fmt.Errorf("%s: %w", which, err)
	}
	for {
		err := ready(ctx, p.address)
		if err == nil {
			break
		}
		if ctx.Err() != nil || time.Since(p.began) > 5*time.Minute {
			return fail(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(p.began)
	spent, err := cpu(p.pid)
	if err != nil {
		return fail(err)
	}
	time.Sleep(2 * time.Second)
	resident, _, err := memory(p.pid)
	if err != nil {
		return fail(err)
	}
	b.figure(which+", large: until it listens", "s").judge("sb", only).see(ours, listening.Seconds())
	b.figure(which+", large: until it is ready", "s").judge("sb", only).see(ours, took.Seconds())
	b.figure(which+", large: CPU until then", "s").judge("sb", only).see(ours, spent.Seconds())
	b.figure(which+", large: memory two seconds later", "MiB").judge("sb", only).see(ours, float64(resident)/(1<<20))
	return p, nil
}

// ready returns an error unless the Switchboard with that address answers /readyz with 200.
func ready(ctx context.Context, address string) error { return answersWell(ctx, address, "/readyz") }

// openRuns leaves runs of all tenants behind.
func (b *bench) openRuns(p *process, note *largeNote) error {
	at, err := url.Parse(p.address)
	if err != nil {
		return err
	}
	for i := range adminRuns {
		one := newClient(endpoint{era: legacy, url: at, key: note.Agents[i%len(note.Agents)]}, fmt.Sprintf("run%d", i))
		if err := one.open(); err != nil {
			return err
		}
		if _, err := one.definitions(); err != nil {
			return err
		}
		one.hangUp()
	}
	return nil
}

// furnish adds what the lists of the API show beside the installation. It returns values for the parameters of routes.
func (b *bench) furnish(ctx context.Context, side *adminSide) (map[string]string, error) {
	tenant := large.TenantID(adminTenant % b.size.Tenants)
	file := "tenants/" + tenant + "/tasks/named.yaml"
	var text struct{ Text string }
	if err := side.read(ctx, "/v1/configuration/file?path="+file, &text); err != nil {
		return nil, err
	}
	for i := range adminChanges {
		resp, _, _, err := side.ask(ctx, http.MethodGet, "/v1/configuration/file?path="+file, nil)
		if err != nil {
			return nil, err
		}
		_, _, _, err = side.ask(ctx, http.MethodPut, "/v1/configuration/file?path="+file, map[string]any{"text": fmt.Sprintf("# %d\n%s", i, text.Text)}, "If-Match", resp.Header.Get("ETag"))
		if err != nil {
			return nil, err
		}
	}
	for i := range adminBlocks {
		if _, _, _, err := side.ask(ctx, http.MethodPost, "/v1/blocks", blockOf(fmt.Sprintf("person-%d", i))); err != nil {
			return nil, err
		}
	}
	for range adminSessions {
		var code struct{ Path string }
		_, answer, _, err := side.ask(ctx, http.MethodPost, "/v1/page-codes", struct{}{})
		if err == nil {
			err = json.Unmarshal(answer, &code)
		}
		if err == nil {
			_, _, _, err = side.ask(ctx, http.MethodGet, code.Path, nil)
		}
		if err != nil {
			return nil, err
		}
	}
	_, answer, _, err := side.ask(ctx, http.MethodPost, "/v1/policy-diffs?tenant="+tenant, map[string]any{"layers": []any{map[string]any{
		"tenant": tenant, "files": []any{map[string]any{"path": "own.rego", "text": "package switchboard.tenant\n\nallowed_tools contains c.id if some c in input.candidate_tools\n"}},
	}}})
	if err != nil {
		return nil, err
	}
	var diff struct{ ID string }
	if err := json.Unmarshal(answer, &diff); err != nil {
		return nil, err
	}
	var changes struct{ Changes []change.Revision }
	if err := side.read(ctx, "/v1/configuration/changes", &changes); err != nil {
		return nil, err
	}
	var decisions struct{ Decisions []struct{ ID string } }
	if err := side.read(ctx, "/v1/decisions?tenant="+tenant, &decisions); err != nil {
		return nil, err
	}
	var receipts struct {
		Receipts []struct {
			ID      string
			Receipt struct{ Time time.Time }
		}
	}
	if err := side.read(ctx, "/v1/receipts?kind=call&limit=500", &receipts); err != nil {
		return nil, err
	}
	var old struct {
		Receipt struct{ Time time.Time }
		ID      string
	}
	if err := side.read(ctx, fmt.Sprintf("/v1/receipt?id=n1/%d", b.size.Receipts/2), &old); err != nil {
		return nil, err
	}
	if len(changes.Changes) == 0 || len(decisions.Decisions) == 0 || len(receipts.Receipts) == 0 {
		return nil, errors.New("there are no changes, no decisions or no receipts to read")
	}
	node, entry, _ := strings.Cut(decisions.Decisions[0].ID, "/")
	server := b.size.UsedServers(adminTenant % b.size.Tenants)[2]
	return map[string]string{
		"tenant": tenant, "wide": large.TenantID(0), "server": large.ServerID(server), "tool": large.ToolName(server, 0), "change": changes.Changes[0].ID, "diff": diff.ID, "node": node, "entry": entry,
		"id": receipts.Receipts[0].ID, "query": "find shipments of a department", "path": "switchboard.yaml",
		"since": old.Receipt.Time.Format(time.RFC3339Nano), "until": old.Receipt.Time.Add(2 * time.Millisecond).Format(time.RFC3339Nano),
	}, nil
}

// blockOf is a request to block a person, or to lift that.
func blockOf(person string) map[string]string {
	return map[string]string{"issuer": "corp", "subject": person}
}

// An adminRead is a GET of the admin API.
type adminRead struct {
	op   openapi.Operation
	path string // with its query
}

// unmeasured are the GETs without a limit, that of one definition, those of the verification of one server, and those of a request for approval, of a proposal, of a dossier and of a tried call, which the large installation does not have. The streams measure events, which never end, and the time of an export depends on how much it exports.
var unmeasured = []string{"follow-events", "export-receipts", "read-approval", "read-pin", "read-proposal", "read-acquisition", "read-try-outcome", "read-verification", "plan-verification"}

// adminFilters are the queries with which a route is asked, beside those that adminReads knows; {name} stands for a value, and a query can be a whole path.
var adminFilters = map[string][]string{
	"search-receipts": {
		"principal=agent-3", "principal=" + large.RarePrincipal, "principal=nobody", "tenant={tenant}&principal=" + large.RarePrincipal,
		"task=look", "task=nothing", "tool=find_invoice_007", "tool={server}/*", "tool=*_000", "tool=none*", "tool=*&principal=nobody",
		"outcome=tool_error", "outcome=unknown", "outcome=unknown&limit=500", "code=" + string(large.RareCode), "code=SB-CONF-001", "kind=admin", "kind=key", "node=n1", "node=n2",
		"since={since}&until={until}", "until={since}", "until={since}&outcome=unknown", "since={since}&outcome=unknown", "tenant={tenant}&outcome=failed&kind=call", "tenant={tenant}&tool=set_*&outcome=refused",
	},
	"list-pins":        {"server={server}", "state=active", "changed=true"},
	"search-decisions": {"task=nothing", "principal=agent-3", "principal=nobody", "outcome=refused", "since={since}&until={until}", "tenant={tenant}&principal=nobody"},
	"read-receipt":     {"id=n1/1000", "id=n1/999999999"},
	"make-decision":    {"principal=agent-3", "principal=agent-3&task=named", "principal=agent-3&tokens=true", "principal=agent-3&definitions=true", "/v1/tenants/{wide}/decision?principal=agent-3"},
	"read-history":     {"step=10s", "step=15m", "total=true", "step=15m&tenant={tenant}", "server={server}"},
	"list-tools":       {"server={server}"},
	"search-tools":     {"query=zyx", "query=archived+entries+of+this+year+that+the+filter+names"},
}

// adminReads returns all reads of the document: each without a query, for one tenant if it takes one, with the longest page if it has pages, and with
// its filters. A route with a parameter without a value is an error, so that a new route cannot be forgotten.
func adminReads(all []openapi.Operation, values map[string]string) (reads []adminRead, err error) {
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, "{"+name+"}", url.QueryEscape(value))
	}
	fill := strings.NewReplacer(pairs...)
	for _, op := range all {
		if op.Method != http.MethodGet || slices.Contains(unmeasured, op.ID) {
			continue
		}
		queries := []string{""}
		if slices.Contains(op.Parameters, "tenant") && !slices.Contains(op.Required, "tenant") {
			queries = append(queries, "tenant={tenant}")
		}
		if slices.Contains(op.Parameters, "limit") {
			queries = append(queries, "limit=500")
		}
		switch op.ID {
		case "make-decision": // each of the tenant's keys is a principal, and none is the default
			queries = nil
		// A comparison of a tenant is found with its tenant only. Capabilities exist for tenants, and so does the memory.
		case "read-policy-diff", "resolve-capabilities", "read-tool-memory", "read-tool-errors", "read-similar-tools", "read-gaps", "suggest-ranking":
			queries = queries[1:]
		}
		for _, q := range append(queries, adminFilters[op.ID]...) {
			path := op.Path
			for _, name := range op.Required {
				if values[name] == "" {
					return nil, fmt.Errorf("%s needs %s, which has no value: add one, so that it is measured", op.ID, name)
				}
				if !strings.HasPrefix(q, "/") && !strings.Contains(path, "{"+name+"}") && !strings.Contains("&"+q, "&"+name+"=") {
					q = strings.TrimSuffix(name+"={"+name+"}&"+q, "&")
				}
			}
			switch {
			case strings.HasPrefix(q, "/"):
				path = q
			case q != "":
				path += "?" + q
			}
			reads = append(reads, adminRead{op, fill.Replace(path)})
		}
	}
	return reads, nil
}

// timeForm is an instant in a query.
var timeForm = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z( n\d+/\d+)?`)

// what names a read without the values that differ between runs.
func (r *adminRead) what() string {
	text, err := url.QueryUnescape(r.path)
	if err != nil {
		text = r.path
	}
	return timeForm.ReplaceAllString(text, "TIME")
}

// allReads measures each read twice in every round, so that the second time says what noise is. The CPU time of the process pid says what an answer
// costs also while other work of the machine delays it.
func (b *bench) allReads(ctx context.Context, pid int, side *adminSide, reads []adminRead) error {
	first := b.figure("the slowest first answer to a GET, large", "ms").judge("sb", func(at at) float64 { return at(ours) })
	var slowest time.Duration
	for i := 0; i < len(reads); i++ {
		r := &reads[i]
		resp, text, took, err := side.ask(ctx, http.MethodGet, r.path, nil)
		if err != nil {
			if r.op.ID != "read-receipt" || resp == nil || resp.StatusCode != http.StatusNotFound {
				return err
			}
		}
		where, _, _ := strings.Cut(r.path, "?")
		if err := openapi.Check(http.MethodGet, where, resp, text); err != nil {
			return err
		}
		slowest = max(slowest, took)
		var more struct{ Next string }
		if _ = json.Unmarshal(text, &more); more.Next != "" && strings.HasSuffix(r.path, "?limit=500") { // a page far behind the first one
			reads = append(reads, adminRead{r.op, where + "?after=" + url.QueryEscape(more.Next)})
		}
	}
	first.see(ours, milli(slowest))
	type row struct{ p50, p95, cpu, size *figure }
	rows := make([]row, len(reads))
	for i := range reads {
		what := reads[i].what()
		rows[i] = row{b.figure("p50, GET "+what, "ms"), b.figure("p95, GET "+what, "ms"), b.figure("CPU, GET "+what, "ms"), b.figure("answer, GET "+what, "KiB")}
		rows[i].p95.judge("sb", func(at at) float64 { return at(ours) }).atMost(maxRead)
		rows[i].p95.compare("sb again / sb", ratio(ours+again, ours))
	}
	for round := range b.rounds {
		for _, i := range rand.New(rand.NewPCG(2, uint64(round))).Perm(len(reads)) {
			for _, name := range []string{ours, ours + again} {
				if err := ctx.Err(); err != nil {
					return err
				}
				size := 0
				before, err := cpu(pid)
				if err != nil {
					return err
				}
				t := run(1, func() func(int) (time.Duration, bool, error) {
					n := 0
					return func(int) (time.Duration, bool, error) {
						if n++; n > asksEach {
							return 0, false, nil
						}
						resp, text, took, err := side.ask(ctx, http.MethodGet, reads[i].path, nil)
						if size = len(text); err != nil && resp != nil && resp.StatusCode == http.StatusNotFound && reads[i].op.ID == "read-receipt" {
							err = nil
						}
						return took, true, err
					}
				}())
				after, err := cpu(pid)
				if err != nil {
					return err
				}
				b.tally(name, t.tally)
				rows[i].cpu.see(name, milli(after-before)/float64(max(t.right, 1)))
				rows[i].p50.see(name, milli(t.at(0.5)))
				rows[i].p95.see(name, milli(t.at(0.95)))
				if name == ours {
					rows[i].size.see(name, float64(size)/1024)
				}
			}
		}
	}
	return nil
}

// What those who follow events do to calls.
const (
	openStreams = 200
	eventEvery  = 200 * time.Millisecond
	streamed    = "sb streams" // with the streams; ours and ours+again are without
	paged       = "sb pages"   // the same with open pages
)

// besideStreams measures calls of agents while events happen: twice without a stream, and once with many.
func (b *bench) besideStreams(ctx context.Context, p *process, note *largeNote, side *adminSide) error {
	missed := b.figure(fmt.Sprintf("events that one of %d streams has not shown", openStreams), "").judge(streamed, func(at at) float64 { return at(streamed) }).atMost(0)
	return b.besideFollowers(ctx, p, note, side, streamed, func() (func(int), error) {
		watch, err := openWatch(ctx, side, openStreams)
		return func(events int) { missed.see(streamed, float64(watch.end(events))) }, err
	})
}

// besideFollowers measures calls of agents while events happen: twice without those who follow them, and once with them. follow begins to follow, and returns what ends that after so many events.
func (b *bench) besideFollowers(ctx context.Context, p *process, note *largeNote, side *adminSide, followed string, follow func() (end func(events int), err error)) error {
	address, err := url.Parse(p.address)
	if err != nil {
		return err
	}
	c := &contestant{name: ours, endpoint: endpoint{era: legacy, url: address, key: note.Agents[1%len(note.Agents)]}}
	agents, err := c.clients(16)
	if err != nil {
		return err
	}
	defer end(agents)
	for _, one := range agents {
		one.tool = large.ToolName(b.size.UsedServers(1 % b.size.Tenants)[0], 0)
	}
	what := fmt.Sprintf("of a call, %d sessions, large, %s", len(agents), followed)
	figures := map[string]*figure{"p50": b.figure("p50 "+what, "ms"), "p99": b.figure("p99 "+what, "ms")}
	spent := b.figure("CPU "+what, "µs")
	for round := range b.rounds {
		order := []string{ours, followed, ours + again}
		rand.New(rand.NewPCG(3, uint64(round))).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, name := range order {
			leave := func(int) {}
			if name == followed {
				var err error
				if leave, err = follow(); err != nil {
					return err
				}
			}
			until, stop := context.WithCancel(ctx)
			var happen sync.WaitGroup
			var events int
			var failed error
			happen.Go(func() { events, failed = happenings(until, side) })
			before, err := cpu(p.pid)
			t := closed(agents, max(b.lasting*5, time.Second), calling(1<<10))
			after, failedToo := cpu(p.pid)
			stop()
			happen.Wait()
			leave(events)
			if err := errors.Join(failed, err, failedToo); err != nil {
				return err
			}
			b.tally(name, t.tally)
			spent.see(name, turn{t, after - before}.each())
			for share, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
				figures[share].see(name, milli(t.at(q)))
			}
		}
	}
	spent.compare(followed+" / sb", ratio(followed, ours))
	spent.compare("sb again / sb", ratio(ours+again, ours))
	for _, share := range slices.Sorted(maps.Keys(figures)) {
		f := figures[share]
		f.compare("sb again / sb", ratio(ours+again, ours))
		f.compare("sb / sb again", ratio(ours, ours+again))
		widest := 1.0
		for _, j := range f.judged {
			v, _ := f.verdict(j)
			widest = max(widest, v.most)
		}
		f.judge(followed+" / sb", ratio(followed, ours)).atMost(widest)
	}
	return nil
}

// happenings makes events happen until ctx ends, and returns how many.
func happenings(ctx context.Context, side *adminSide) (n int, err error) {
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	for ; ctx.Err() == nil; n++ {
		path := []string{"/v1/blocks", "/v1/blocks/lift"}[n%2]
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // the last event happens as a whole, too
		_, _, _, err := side.ask(asked, http.MethodPost, path, blockOf("guest"))
		cancel()
		if err != nil {
			return n, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return n, nil
}

// A streamWatch reads streams of events.
type streamWatch struct {
	stop    context.CancelFunc
	reading sync.WaitGroup
	seen    []atomic.Int64 // events, by stream
}

// openWatch opens n streams, and returns when each has begun.
func openWatch(ctx context.Context, side *adminSide, n int) (*streamWatch, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &streamWatch{stop: stop, seen: make([]atomic.Int64, n)}
	client := &http.Client{Transport: &http.Transport{}}
	for i := range n {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, side.at+"/v1/events", nil)
		if err != nil {
			stop()
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+side.key)
		resp, err := client.Do(r)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.Join(fmt.Errorf("stream %d: %s", i, resp.Status), resp.Body.Close())
		}
		if err != nil {
			stop()
			return nil, err
		}
		w.reading.Go(func() {
			defer func() { _ = resp.Body.Close() }() // the end of ctx ends it
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				if bytes.HasPrefix(lines.Bytes(), []byte("event: person")) {
					w.seen[i].Add(1)
				}
			}
		})
	}
	return w, nil
}

// streamPatience is how long the last event may take to every stream.
const streamPatience = 10 * time.Second

// end closes the streams, after each has shown so many events, and returns how many are missing in the stream that has shown the fewest.
func (w *streamWatch) end(events int) (missing int64) {
	for began := time.Now(); time.Since(began) < streamPatience; time.Sleep(10 * time.Millisecond) {
		missing = 0
		for i := range w.seen {
			missing = max(missing, int64(events)-w.seen[i].Load())
		}
		if missing <= 0 {
			break
		}
	}
	w.stop()
	w.reading.Wait()
	return max(missing, 0)
}
