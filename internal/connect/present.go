package connect

import (
	"os"
	"slices"
)

// Present reports whether the client seems to be installed: a file of it exists, its folder, or its program.
func (c *Client) Present(h *Host) bool {
	for _, p := range c.places(h) {
		if p.own() && exists(p.File) {
			return true
		}
	}
	if c.marks != nil && slices.ContainsFunc(c.marks(h), exists) {
		return true
	}
	for _, program := range c.programs {
		if _, err := h.LookPath(program); err == nil {
			return true
		}
	}
	return false
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// HasScope reports whether the client has files of a scope.
func (c *Client) HasScope(h *Host, scope Scope) bool {
	for _, p := range c.places(h) {
		if p.Scope == scope {
			return true
		}
	}
	return false
}

// Connected reports whether a record of the client exists in the data folder, so that it can be disconnected.
func Connected(data, client string) bool {
	r, err := recordDir(data).read(client)
	return err == nil && r != nil
}

// ListNames returns the names of all servers in the user's own files of the client, with ours.
func ListNames(c *Client, h *Host) ([]string, error) {
	p := &Plan{options: Options{Client: c, Host: h}, files: map[string]*clientText{}}
	var out []string
	for _, place := range c.places(h) {
		if !place.own() {
			continue
		}
		entries, err := p.entries(place)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			out = append(out, e.Name)
		}
	}
	return out, nil
}
