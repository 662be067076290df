package policy

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/canonical"
)

// SelectArguments returns the parts of arguments that the paths name, in canonical form. A rule that reads
// only these paths gives the same answer for both.
func SelectArguments(arguments []byte, paths [][]string) ([]byte, error) {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	if slices.ContainsFunc(paths, func(path []string) bool { return len(path) == 0 }) {
		return canonical.Append(nil, arguments)
	}
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber() // numbers keep their spelling
	var all any
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	kept := map[string]any{}
	for _, path := range paths {
		copyPath(kept, all, path)
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	return canonical.Append(nil, text)
}

// copyPath copies the value at path in v to the same path in kept.
func copyPath(kept map[string]any, v any, path []string) {
	from, ok := v.(map[string]any)
	if !ok {
		return
	}
	v, ok = from[path[0]]
	if !ok {
		return
	}
	if len(path) == 1 {
		kept[path[0]] = v
		return
	}
	into, ok := kept[path[0]].(map[string]any)
	if !ok {
		into = map[string]any{}
	}
	if copyPath(into, v, path[1:]); len(into) > 0 {
		kept[path[0]] = into
	}
}
