package page

import "strings"

// PathsOfViews returns the paths of all views, as their rows have them.
func PathsOfViews() (paths []string) {
	for i := range allViews {
		paths = append(paths, allViews[i].path)
	}
	return paths
}

// PathOfView returns the path of the view at an address, as its row has it; "" if there is none.
func PathOfView(address string) string {
	path, _, _ := strings.Cut(address, "?")
	if v, _ := findView(path); v != nil {
		return v.path
	}
	return ""
}
