// Package access decides which HTTP requests may be answered at all, before anything is known about the caller: by the
// Host and Origin headers, by the type of the body, and by how often the caller's network has failed to authenticate.
// Who the caller is, package identity decides.
package access

import (
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// An AllowList holds the hosts and origins that are allowed in addition to this machine's own. It is immutable.
type AllowList struct {
	hosts   map[string]bool // "name" or "name:port"
	origins map[string]bool
}

// NewAllowList returns an AllowList. A host is "name", for any port, or "name:port". An origin is "https://name", with its port if
// it has one.
func NewAllowList(hosts, origins []string) *AllowList {
	a := &AllowList{hosts: map[string]bool{}, origins: map[string]bool{}}
	for _, h := range hosts {
		a.hosts[strings.ToLower(h)] = true
	}
	for _, o := range origins {
		a.origins[strings.ToLower(strings.TrimSuffix(o, "/"))] = true
	}
	return a
}

// RefusalReason says why r may not be answered; "" means that it may. A web page can make a browser
// on this machine send requests to us: by a name of the page's own that resolves to us (then Host
// is that name), or across origins (then Origin or Sec-Fetch-Site shows it).
func (a *AllowList) RefusalReason(r *http.Request) string {
	if !a.allowsHost(r.Host) {
		return "this host name is not allowed here; the operator can add it to hosts"
	}
	origins := r.Header.Values("Origin")
	if len(origins) > 1 {
		return "more than one Origin"
	}
	if len(origins) == 1 {
		origin := strings.ToLower(origins[0])
		if a.origins[origin] {
			return ""
		}
		if !isSameOrLoopback(origin, r.Host) {
			return "this origin is not allowed here; the operator can add it to origins"
		}
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if strings.EqualFold(site, "cross-site") {
			return "requests of other sites' pages are not allowed here"
		}
	}
	return ""
}

// IsFromPage reports whether a web page of any origin sent r. Browsers say so with each request
// that could change something.
func IsFromPage(r *http.Request) bool {
	return len(r.Header.Values("Origin")) > 0 || len(r.Header.Values("Sec-Fetch-Site")) > 0
}

// Scheme returns the scheme of the URL by which r has come.
func Scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// allowsHost reports whether the Host header may have this value.
func (a *AllowList) allowsHost(host string) bool {
	host = strings.ToLower(host)
	name, _, err := net.SplitHostPort(host)
	if err != nil { // there is no port
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return isLoopback(name) || a.hosts[name] || a.hosts[host]
}

// ListedOrigin returns the origin of r, and whether the configuration lists it.
func (a *AllowList) ListedOrigin(r *http.Request) (string, bool) {
	origin := r.Header.Get("Origin")
	return origin, origin != "" && a.origins[strings.ToLower(origin)]
}

// isSameOrLoopback reports whether origin is the host itself or this machine.
func isSameOrLoopback(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	return strings.EqualFold(u.Host, host) || isLoopback(u.Hostname())
}

// isLoopback reports whether name can only mean this machine.
func isLoopback(name string) bool {
	if name == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Zone() == "" && ip.Unmap().IsLoopback()
}

// mediaJSON is the only type of a body that is read.
const mediaJSON = "application/json"

// NotJSON says what to send instead if the body of r is not plain JSON; "" means that it is. A page
// of another origin can send forms and plain text without a preflight request.
func NotJSON(w http.ResponseWriter, r *http.Request) string {
	for _, e := range r.Header.Values("Content-Encoding") {
		if e != "" && e != "identity" {
			w.Header().Set("Accept-Encoding", "identity")
			return "a body in a Content-Encoding is not read here; send it as it is, without that header"
		}
	}
	types := r.Header.Values("Content-Type")
	if len(types) == 1 {
		if types[0] == mediaJSON { // the spelling of nearly all clients
			return ""
		}
		if t, _, err := mime.ParseMediaType(types[0]); err == nil && t == mediaJSON {
			return ""
		}
	}
	return "Content-Type must be application/json"
}
