package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of the manifests. A reload that has a last good copy waits for a shorter time, because a
// silent address must not delay the other changes.
const (
	MaxManifestBytes = 4 << 20
	MaxFetchTime     = 10 * time.Second
	maxRefetchTime   = 3 * time.Second
	maxFetches       = 8 // at a time
)

// A manifestRef is the manifest that a server names.
type manifestRef struct {
	server switchboard.ServerID
	via    *switchboard.Network // of the server
	at     document.Value
	url    bool
	name   string // file or URL
}

// readManifestRef records the manifest that a server names.
func (r *serverRow) readManifestRef(v document.Value, s string) {
	if strings.Contains(s, "${") {
		v.Fault("${…} is not read here; write a path or an address")
		return
	}
	ref := manifestRef{server: r.server.ID, via: &r.server.Network, at: v, name: s}
	switch {
	case strings.HasPrefix(s, "http://"), strings.HasPrefix(s, "https://"):
		ref.url = true
		if why := endpoint.BadURL(s); why != "" {
			v.Fault("%s", why)
			return
		}
		warnLinkLocal(v, s)
	case strings.Contains(s, "://"):
		v.Fault("%s: want a file, or an address that begins with http:// or https://", v.Shown())
		return
	case !filepath.IsAbs(s):
		name, err := localPath(s)
		if err != nil {
			v.Fault("%s: %v", v.Shown(), err)
			return
		}
		ref.name = name
	}
	r.manifestRefs = append(r.manifestRefs, ref)
}

// readManifests reads all manifests: files one by one, URLs concurrently.
func (l *loader) readManifests(ctx context.Context) {
	type answer struct {
		data []byte
		err  error
	}
	answers := make([]answer, len(l.manifestRefs))
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxFetches)
	for i, ref := range l.manifestRefs {
		if !ref.url {
			answers[i].data, answers[i].err = l.readFile(ref.name, MaxManifestBytes)
			continue
		}
		if l.opts.Fetch == nil {
			answers[i].err = errors.New("addresses are not fetched here; name a file")
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, l.fetchTime(ref.server))
			defer cancel()
			answers[i].data, answers[i].err = l.opts.Fetch(ctx, ref.name, *ref.via)
		})
	}
	wg.Wait()
	for i, ref := range l.manifestRefs {
		name := ref.name
		if ref.url {
			name, _, _ = strings.Cut(name, "?")
		} else if !filepath.IsAbs(name) {
			name = l.displayPath(name)
		}
		p := l.newPart(manifestPart(ref.server), "")
		ref.at.Sink = p.sink
		data, err := answers[i].data, answers[i].err
		switch {
		case err != nil:
			ref.at.Fault("manifest %s cannot be read: %s", document.Shown(name), fetchErrorText(err))
		case len(data) > MaxManifestBytes:
			ref.at.Fault("manifest %s is larger than %d bytes", document.Shown(name), MaxManifestBytes)
		default:
			if line, col, why := badJSONObject(data); why != "" {
				p.sink.Add(Fault{File: name, Line: line, Column: col, Text: why})
			}
		}
		l.cfg.Manifests[ref.server] = l.lastManifest(p, ref.server, Manifest{Name: name, Digest: l.manifestDigest(ref), Data: data})
	}
}

// fetchTime returns how long fetching the manifest of a server may take.
func (l *loader) fetchTime(id switchboard.ServerID) time.Duration {
	if m, ok := l.previous().Manifests[id]; ok && m.Fault == "" {
		return maxRefetchTime
	}
	return MaxFetchTime
}

// lastManifest returns now if it is good, else the last good manifest. If there is none, it returns a
// manifest with a fault. That withdraws the tools of the server, because the restrictions in the
// manifest are unknown.
func (l *loader) lastManifest(p *partState, id switchboard.ServerID, now Manifest) Manifest {
	if !p.sink.Faulty() {
		return now
	}
	if last, ok := l.previous().Manifests[id]; ok && last.Fault == "" && last.Digest == now.Digest {
		p.KeepsLastGood = true
		return last
	}
	return Manifest{Name: now.Name, Digest: now.Digest, Fault: p.sink.Faults[0].Text}
}

// manifestDigest returns Manifest.Of.
func (l *loader) manifestDigest(ref manifestRef) string {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%q", ref.name)
	for i := range l.cfg.Servers {
		if s := &l.cfg.Servers[i]; s.ID == ref.server {
			_, _ = fmt.Fprintf(sum, "%q %q %q %q", s.Transport, s.URL, s.Command, s.Dir)
			if s.Package.Name != "" {
				_, _ = fmt.Fprintf(sum, " %q", s.Package)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// fetchErrorText returns the text of an error without the address that net/http puts in front.
func fetchErrorText(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return document.ErrorText(err)
}

// badJSONObject returns where and why data is not one JSON object. It accepts duplicate keys: the
// catalog reports them as faults of the tool that holds them.
func badJSONObject(data []byte) (line, col int, why string) {
	dec := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	if k := dec.PeekKind(); k != '{' {
		if _, err := dec.ReadToken(); err == nil || errors.Is(err, io.EOF) {
			return 1, 1, "a manifest is one JSON object"
		}
	}
	if err := dec.SkipValue(); err != nil {
		line, col = document.Position(data, jsonOffset(err, dec))
		return line, col, jsonErrorText(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		line, col = document.Position(data, int(dec.InputOffset()))
		return line, col, "something follows the JSON object; a file holds one"
	}
	return 0, 0, ""
}

func jsonOffset(err error, dec *jsontext.Decoder) int {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return int(e.ByteOffset)
	}
	return int(dec.InputOffset())
}

// jsonErrorText returns why a text is not JSON. Unlike the decoder's own message, it repeats nothing
// of the text.
func jsonErrorText(err error) string {
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "a key stands here twice"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the JSON ends too early; a bracket or quote is missing"
	}
	return "this is not valid JSON"
}
