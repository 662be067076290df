package endpoint_test

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/endpoint"
)

func TestAddressesThatAreNotForServersAreRefused(t *testing.T) {
	for url, want := range map[string]string{
		"https://mcp.example.com/mcp?tenant=a":                                     "",
		"http://127.0.0.1:8000/mcp":                                                "",
		"ftp://mcp.example.com":                                                    "begins with http",
		"https://user:pass@mcp.example.com":                                        "user or password",
		"https:///mcp":                                                             "no host",
		"https://mcp.example.com/#a":                                               "fragment",
		"https://mcp.example.com/?a=%zz":                                           "no query",
		"https://mcp.example.com/?api_key=x":                                       endpoint.SecretInURL,
		"https://mcp.example.com/${env:X}":                                         "is not read in an address",
		"https://mcp.example.com/a b":                                              "no URL",
		"https://mcp.example.com/" + strings.Repeat("a", 8<<10):                    "no URL",
		"https://mcp.example.com/\n":                                               "no URL",
		"https://mcp.example.com/?a=ghp_" + "x7Kq2mZ9pL4vT8nB3cW6yR1dF5gH0jS9uE2a": endpoint.SecretInURL,
	} {
		if got := endpoint.BadURL(url); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("BadURL(%.80q) = %q, want %q", url, got, want)
		}
	}
}

func TestHeadersThatSwitchboardSetsAreReserved(t *testing.T) {
	for name, want := range map[string]bool{"Host": true, "Mcp-Session-Id": true, "Content-Length": true, "Authorization": false, "X-Mcp": false} {
		if got := endpoint.ReservedHeader(name); got != want {
			t.Errorf("ReservedHeader(%s) = %v, want %v", name, got, want)
		}
	}
	if endpoint.HeaderName("a b") || endpoint.HeaderName("") || !endpoint.HeaderName("X-Api-Key") {
		t.Error("HeaderName does not follow RFC 9110")
	}
	if endpoint.HeaderValue("a\r\nb") || !endpoint.HeaderValue("a\tb") {
		t.Error("HeaderValue accepts a line break, or refuses a tab")
	}
}

func TestRelativePathsAreRelativeToTheFolder(t *testing.T) {
	for path, want := range map[string]string{"bin/a": "/etc/switchboard/bin/a", "../a": "/etc/a", "/usr/bin/../a": "/usr/a"} {
		if got := endpoint.Absolute("/etc/switchboard", path); got != want {
			t.Errorf("Absolute(%s) = %s, want %s", path, got, want)
		}
	}
}
