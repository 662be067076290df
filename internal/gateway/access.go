package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
)

// A callerCheck decides whether a request may be answered, by its key, its address and its Host.
type callerCheck struct {
	authenticator Authenticator
	allowed       atomic.Pointer[accessList]
	failures      authFailures
}

// An accessList holds the hosts and origins that are allowed in addition to this machine's own.
type accessList struct {
	hosts   map[string]bool // "name" or "name:port"
	origins map[string]bool
}

func newAccessList(hosts, origins []string) *accessList {
	a := &accessList{hosts: map[string]bool{}, origins: map[string]bool{}}
	for _, h := range hosts {
		a.hosts[strings.ToLower(h)] = true
	}
	for _, o := range origins {
		a.origins[strings.ToLower(strings.TrimSuffix(o, "/"))] = true
	}
	return a
}

// refusalReason says why r may not be answered; "" means that it may. A web page can make a browser
// on this machine send requests to us: by a name of the page's own that resolves to us (then Host
// is that name), or across origins (then Origin or Sec-Fetch-Site shows it).
func (a *accessList) refusalReason(r *http.Request) string {
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

// isFromPage reports whether a web page of any origin sent r. Browsers say so with each request
// that could change something.
func isFromPage(r *http.Request) bool {
	return len(r.Header.Values("Origin")) > 0 || len(r.Header.Values("Sec-Fetch-Site")) > 0
}

// allowsHost reports whether the Host header may have this value.
func (a *accessList) allowsHost(host string) bool {
	host = strings.ToLower(host)
	name, _, err := net.SplitHostPort(host)
	if err != nil { // there is no port
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return isLoopback(name) || a.hosts[name] || a.hosts[host]
}

// listedOrigin returns the origin of r, and whether the configuration lists it.
func (a *accessList) listedOrigin(r *http.Request) (string, bool) {
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

// answerCORS tells a browser that pages of a configured origin may use Switchboard. done means that
// r was a preflight request, which is answered now. Other origins get no CORS headers.
func (g *Gateway) answerCORS(w http.ResponseWriter, r *http.Request) (done bool) {
	origin, ok := g.callers.allowed.Load().listedOrigin(r)
	if !ok {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	// The tools' Mcp-Param headers have arbitrary names, so all requested names are granted. For a
	// configured origin, no protection depends on header names.
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}
