package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// networkType is what a program may reach: none, any, or a list of hosts.
func networkType(read func(v document.Value)) document.Type {
	hosts := document.Schema{"type": "array", "items": document.Schema{"type": "string", "pattern": `^[^:/]+:[0-9]+$|^\[[0-9a-f:.]+\]:[0-9]+$`}, "minItems": 1, "maxItems": switchboard.MaxHosts, "uniqueItems": true}
	return document.Custom("one of `none`, `any`, or a list of hosts with ports", document.Schema{"oneOf": []document.Schema{{"enum": []string{"none", "any"}}, hosts}}, read)
}

// readHosts reads the hosts that a program may reach, and returns them sorted.
func readHosts(v document.Value) (out []switchboard.HostPort) {
	if len(v.Items) == 0 {
		v.Fault("the list names no host; write none")
		return nil
	}
	for _, item := range v.ReadList(switchboard.MaxHosts) {
		s, ok := item.ReadText()
		if !ok {
			continue
		}
		h, why := parseHostPort(s)
		switch {
		case why != "":
			item.Fault("%s: %s", item.Shown(), why)
			continue
		case slices.Contains(out, h):
			item.Fault("%s stands here twice", item.Shown())
			continue
		}
		if endpoint.LinkLocal("http://" + h.String()) {
			item.Warn("%s: clouds give out a machine's credentials at this address; the program gets them too", item.Shown())
		}
		out = append(out, h)
	}
	slices.SortFunc(out, switchboard.CompareHostPorts)
	return out
}

// parseHostPort returns the host and the port that a text names, or why it names none.
func parseHostPort(s string) (h switchboard.HostPort, why string) {
	const form = "write HOST:PORT, such as api.example.com:443"
	if strings.Contains(s, "/") {
		return h, "this is an address of the web or a network; " + form
	}
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return h, "the port is missing; " + form
	}
	name, number := s[:at], s[at+1:]
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 || number[0] == '0' || number[0] == '+' {
		return h, "want a port from 1 to 65535 behind the last colon; " + form
	}
	inner, bracketed := strings.CutPrefix(name, "[")
	if bracketed {
		if name, bracketed = strings.CutSuffix(inner, "]"); !bracketed {
			return h, "the bracket is not closed; write [2001:db8::1]:443"
		}
	}
	ip, err := netip.ParseAddr(name)
	switch {
	case err != nil && bracketed:
		return h, "an IPv6 address is wanted in brackets, such as [2001:db8::1]:443"
	case err != nil && strings.Contains(name, ":"):
		return h, form
	case err != nil:
		if why := badHostName(name); why != "" {
			return h, why
		}
	case ip.Is6() && !bracketed:
		return h, "write the IPv6 address in brackets, such as [2001:db8::1]:443"
	case ip.Is4() && bracketed:
		return h, "brackets are for IPv6 addresses alone"
	case ip.Zone() != "" || ip.Is6() && ip.IsLinkLocalUnicast():
		return h, "this address needs the name of a network card of this machine, which a program with a network of its own does not have"
	case ip.Is4In6():
		return h, "write it as an IPv4 address: " + ip.Unmap().String()
	case ip.IsUnspecified() || ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return h, "this is not the address of one host"
	case ip.String() != name:
		return h, "write it as " + ip.String()
	}
	return switchboard.HostPort{Name: name, Port: uint16(port)}, ""
}

// maxHostName and maxLabel limit a host name and the part between two dots.
const (
	maxHostName = 253
	maxLabel    = 63
)

// badHostName returns why a text is no host name, or "".
func badHostName(name string) string {
	switch {
	case strings.ContainsAny(name, "*?"):
		return "there are no wildcards; name each host"
	case strings.Contains(name, "$"):
		return "there are no references here; write the host"
	case name != strings.ToLower(name):
		return "write it in lower case"
	case strings.HasSuffix(name, "."):
		return "write it without the dot at its end"
	case len(name) > maxHostName:
		return "a host name has at most 253 characters"
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		bad := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' }
		switch {
		case label == "":
			return "this is no host name; a part of it is empty"
		case len(label) > maxLabel:
			return "a part of a host name has at most 63 characters"
		case strings.ContainsFunc(label, func(r rune) bool { return r > '~' }):
			return "write the name as DNS has it, which begins with xn--"
		case strings.ContainsFunc(label, bad) || label[0] == '-' || label[len(label)-1] == '-':
			return "this is no host name; it has letters, digits, hyphens and dots"
		}
	}
	// Some programs read 127.1 and 0x7f.0x1 as addresses.
	if _, err := strconv.ParseUint(labels[len(labels)-1], 0, 64); err == nil {
		return "this is neither a host name nor an IP address in its usual form"
	}
	return ""
}
