package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"sync"
)

// assetsPath begins the addresses of scripts, styles and pictures. The digest of the file and its name follow, so browsers keep what they have read.
const assetsPath = "/assets/"

// The scripts of others are copies from the packages of assets/package-lock.json.
//
//go:embed assets/htmx.min.js assets/sse.min.js assets/page.js assets/ranking.js assets/times.js assets/icon.svg assets/icons.svg views/style.css
var assetFiles embed.FS

// assetTypes are the types of content by the ends of names.
var assetTypes = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// An assetFile is a script, a style or a picture.
type assetFile struct {
	address     string
	contentType string
	plain, gzip []byte
}

// assets returns all by their names.
var assets = sync.OnceValue(func() map[string]*assetFile {
	all := map[string]*assetFile{}
	for _, file := range []string{"assets/htmx.min.js", "assets/sse.min.js", "assets/page.js", "assets/ranking.js", "assets/times.js", "assets/icon.svg", "assets/icons.svg", "views/style.css"} {
		text, err := assetFiles.ReadFile(file)
		if err != nil {
			panic(err) // it is embedded
		}
		name, sum := path.Base(file), sha256.Sum256(text)
		all[name] = &assetFile{address: assetsPath + hex.EncodeToString(sum[:8]) + "/" + name, contentType: assetTypes[path.Ext(name)], plain: text, gzip: compress(text)}
	}
	return all
})

// addressOf returns the address of an assetFile.
func addressOf(name string) string { return assets()[name].address }

// serveAsset answers a request for an assetFile. They are the same for everybody.
func serveAsset(p *Page, w http.ResponseWriter, r *http.Request) {
	a := assets()[path.Base(r.URL.Path)]
	if a == nil || a.address != r.URL.Path {
		p.refuse(w, http.StatusNotFound, "nothing is here; load the page again")
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "private, max-age=31536000, immutable") // another file has another address
	text := a.plain
	h.Add("Vary", "Accept-Encoding")
	if takesGzip(r) {
		h.Set("Content-Encoding", "gzip")
		text = a.gzip
	}
	_, _ = w.Write(text)
}

// takesGzip reports whether the browser reads compressed answers.
func takesGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		if name, quality, _ := strings.Cut(part, ";"); strings.TrimSpace(name) == "gzip" && strings.Trim(strings.TrimSpace(quality), "q=0.") != "" || strings.TrimSpace(part) == "gzip" {
			return true
		}
	}
	return false
}

// minGzip is the size in bytes below which a page fits into one packet as it is.
const minGzip = 1200

// A gzipWriter answers a browser that reads compressed pages.
type gzipWriter struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (w gzipWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// gzipWriters are writers that are free. A new one takes 1.2 MiB, a hundred times the size of most views.
var gzipWriters = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return z
}}

// compress returns the text in gzip.
func compress(text []byte) []byte {
	var b bytes.Buffer
	z := gzipWriters.Get().(*gzip.Writer)
	z.Reset(&b)
	_, _ = z.Write(text)
	_ = z.Close()
	z.Reset(nil) // else it keeps the buffer
	gzipWriters.Put(z)
	return b.Bytes()
}
