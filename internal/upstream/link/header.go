package link

import (
	"math"
	"net/http"
	"strconv"

	"github.com/summit-switchboard/switchboard/internal/upstream/http1"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// paramHeader is the annotation in a schema that asks for an argument to be repeated in a header.
const paramHeader = "x-mcp-header"

// addParamHeaders sets the Mcp-Param-* headers that the tool's definition asks for. arguments is
// the object that is sent.
func addParamHeaders(h http.Header, definition, arguments []byte) {
	schema, _ := wire.Field(definition, "inputSchema")
	addProperties(h, schema, arguments)
}

func addProperties(h http.Header, schema, object []byte) {
	properties, _ := wire.Field(schema, "properties")
	for name, property := range wire.Members(properties) {
		value, ok := wire.Field(object, name)
		if !ok {
			continue
		}
		raw, _ := wire.Field(property, paramHeader)
		if header, ok := wire.String(raw); ok && http1.IsToken(header) {
			if text, ok := headerText(value); ok {
				h[http.CanonicalHeaderKey(wire.HeaderParamPrefix+header)] = []string{wire.EncodeHeader(text)}
			}
		}
		addProperties(h, property, value)
	}
}

// headerText returns an argument as a header value. It accepts strings, booleans, and integers that
// every reader can hold. Other arguments are not repeated.
func headerText(value []byte) (string, bool) {
	switch {
	case len(value) == 0:
		return "", false
	case value[0] == '"':
		return wire.String(value)
	case string(value) == "true", string(value) == "false":
		return string(value), true
	}
	const most = 1<<53 - 1 // a float64 holds no larger integer exactly
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > most {
		return "", false
	}
	return strconv.FormatInt(int64(n), 10), true
}
