// Package registry reads what registries of MCP servers list, and says what people should know about it.
//
// The operator names the registries: a file, or an address that speaks the registry API v0.1 of the MCP project. Without one, nothing is asked. An answer, or a file, is a
// list:
//
//	{"servers": [{"server": {…}, "_meta": {…}}], "metadata": {"nextCursor": "…"}}
//
// Each server is a server.json. A file may also hold an array of these, or one. The publisher of a server.json is a stranger. So an [Entry] has narrow fields alone: names,
// versions, hosts and two short texts. Commands, arguments, values of variables and mounts never leave this package; a [Remark] says that they were there. What a server.json
// says is a claim. [CheckNames] judges the names, and [OwnsPackage] compares them with the package itself.
//
// The package decides which entries are refused, and why the others cannot be tried. What is done with an entry is for the caller.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The bounds of one reading. A registry that has more pages, entries or bytes, or takes longer, gives a Listing that is cut. If not even its first page
// is within the bounds, that is an error.
const (
	MaxPages   = 100
	MaxEntries = 10_000 // refused ones count
	MaxBytes   = 16 << 20
	MaxTime    = 30 * time.Second

	// MaxRequestTime limits one request. If it is over, that is an error.
	MaxRequestTime = 10 * time.Second
)

const (
	maxRefused = 100 // entries whose reasons are kept
	maxCursor  = 1 << 10
	pageSize   = "100"
)

// bounds limit one reading.
type bounds struct {
	pages, entries, bytes int
	time, requestTime     time.Duration
}

var standard = bounds{MaxPages, MaxEntries, MaxBytes, MaxTime, MaxRequestTime}

// A Listing is what a registry lists.
type Listing struct {
	Registry string // the id of its row

	Entries []Entry // in the order of the registry

	// Refused are the first entries that were refused. RefusedCount counts all.
	Refused      []RefusedEntry
	RefusedCount int

	// Cut says why the listing may lack entries, for people; "" means that it is whole.
	Cut string
}

// A RefusedEntry is a server.json that is not taken.
type RefusedEntry struct {
	Where  string // its place in the list: "page 2, entry 7"
	Name   string // "" if the name is not valid
	Reason string // for people
}

// Options are the settings of Read.
type Options struct {
	Folder string // of the configuration: files are relative to it
}

// Read reads a registry. The error names the registry, and says what is wrong with the whole of it. An entry that is wrong is refused alone.
func Read(ctx context.Context, row switchboard.ServerRegistry, o Options) (*Listing, error) {
	return read(ctx, row, o, standard)
}

func read(ctx context.Context, row switchboard.ServerRegistry, o Options, b bounds) (*Listing, error) {
	r := &reading{bounds: b, listing: &Listing{Registry: row.ID}, listed: map[string]bool{}}
	var err error
	switch {
	case row.URL != "":
		err = r.readPages(ctx, row.URL)
	case row.File != "":
		err = r.readFile(row.File, o.Folder)
	default:
		err = errors.New("its row names neither a file nor a url")
	}
	if err != nil {
		return nil, fmt.Errorf("registry %s: %w", row.ID, err)
	}
	return r.listing, nil
}

// reading is the state of reading one registry.
type reading struct {
	bounds
	listing *Listing
	listed  map[string]bool // names with versions
	items   int             // entries, refused ones too
	bytes   int
	page    int
}

// cut ends the reading at a bound.
func (r *reading) cut(format string, args ...any) { r.listing.Cut = fmt.Sprintf(format, args...) }

func (r *reading) readFile(name, folder string) error {
	path := filepath.FromSlash(name)
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	data, err := document.ReadBounded(func() (fs.FileInfo, error) { return os.Stat(path) },
		func() (fs.File, error) { return os.Open(path) }, int64(r.bounds.bytes), document.AnyFile)
	if err != nil {
		return fmt.Errorf("%s cannot be read: %s", name, document.ErrorText(err))
	}
	r.page = 1
	cursor, err := r.readPage(data, false)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if cursor != "" && r.listing.Cut == "" {
		r.cut("the file is one page of a list; the registry has more")
	}
	return nil
}

// readPages reads page by page until there is no further one, or a bound is reached.
func (r *reading) readPages(ctx context.Context, address string) error {
	limited, cancel := context.WithTimeout(ctx, r.time)
	defer cancel()
	transport := &http.Transport{
		DialContext: dial.Context, Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: r.requestTime, MaxResponseHeaderBytes: 64 << 10,
		DisableCompression: true, // the bound on bytes then applies to what is read
	}
	defer transport.CloseIdleConnections()
	// A redirect is not followed: the operator named this address, and no other.
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	seen := map[string]bool{}
	for cursor := ""; ; {
		r.page++
		data, err := r.fetch(limited, client, address, cursor)
		switch {
		case err != nil && r.page > 1 && limited.Err() != nil && ctx.Err() == nil:
			r.cut("reading was stopped after %s, at page %d", r.time, r.page)
			return nil
		case errors.Is(err, errLarge) && r.page > 1:
			r.cut("reading was stopped at %d bytes, at page %d", r.bounds.bytes, r.page)
			return nil
		case err != nil:
			return fmt.Errorf("page %d: %w", r.page, err)
		}
		if cursor, err = r.readPage(data, true); err != nil {
			return fmt.Errorf("page %d: %w", r.page, err)
		}
		switch {
		case r.listing.Cut != "" || cursor == "":
			return nil
		case seen[cursor]:
			return fmt.Errorf("page %d: it names the cursor of an earlier page again, so the list would never end; tell the people who run the registry", r.page)
		case r.page == r.pages:
			r.cut("reading was stopped after %d pages; the registry has more", r.pages)
			return nil
		}
		seen[cursor] = true
	}
}

// errLarge says that an answer is over the bound on bytes.
var errLarge = errors.New("it sends too much")

// fetch returns the page at a cursor.
func (r *reading) fetch(ctx context.Context, client *http.Client, address, cursor string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, r.requestTime)
	defer cancel()
	// A registry keeps old versions: only the latest ones are asked for.
	query := url.Values{"limit": {pageSize}, "version": {"latest"}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	req, err := http.NewRequestWithContext(limited, http.MethodGet, address+"/v0.1/servers?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "switchboard")
	resp, err := client.Do(req)
	if err != nil {
		return nil, r.fetchError(ctx, limited, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, fmt.Errorf("it redirects to %s, and redirects are not followed; if the registry has moved there, write that address into registries", shown(resp.Header.Get("Location"), 200))
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answers %d; check the address in registries", resp.StatusCode)
	case resp.Header.Get("Content-Encoding") != "":
		return nil, errors.New("it compresses its answer, which was asked for plain")
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(r.bounds.bytes-r.bytes+1)))
	if err != nil {
		return nil, r.fetchError(ctx, limited, err)
	}
	if r.bytes += len(data); r.bytes > r.bounds.bytes {
		return nil, fmt.Errorf("%w: at most %d bytes are read", errLarge, r.bounds.bytes)
	}
	return data, nil
}

// fetchError returns the error of a request without its address, which holds the cursor.
func (r *reading) fetchError(ctx, limited context.Context, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("no whole answer within %s", r.requestTime)
	}
	if refused, ok := errors.AsType[*dial.RefusedError](err); ok {
		return fmt.Errorf("%w; %s", refused, refused.Remedy)
	}
	return err
}

// readPage takes the entries of a page, and returns the cursor of the next one. An answer must have the form of the API; a file may have others.
func (r *reading) readPage(data []byte, answer bool) (cursor string, err error) {
	page, err := splitPage(data, r.entries-r.items)
	if err != nil {
		return "", err
	}
	if answer && !page.list {
		return "", errForm
	}
	for i, raw := range page.items {
		r.items++
		where := "page " + strconv.Itoa(r.page) + ", entry " + strconv.Itoa(i+1)
		e, err := readEntry(raw)
		e.Registry = r.listing.Registry
		switch listed := e.Name + "@" + e.Version; {
		case err == nil && r.listed[listed]:
			err = fmt.Errorf("%s stands in the list twice", listed)
		case err == nil:
			r.listed[listed] = true
			r.listing.Entries = append(r.listing.Entries, e)
		}
		if err != nil {
			if r.listing.RefusedCount++; len(r.listing.Refused) < maxRefused {
				r.listing.Refused = append(r.listing.Refused, RefusedEntry{where, e.Name, err.Error()})
			}
		}
	}
	if page.more {
		r.cut("reading was stopped after %d entries, at page %d; the registry has more", r.entries, r.page)
	}
	return page.cursor, nil
}
