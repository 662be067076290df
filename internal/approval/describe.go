package approval

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// describeArguments returns the arguments of a call as JSON, in which each character that a person cannot see, or that changes what a person sees, is
// written as \u{…}.
func describeArguments(c *switchboard.Call) string {
	raw, ok := wire.Field(c.Params, "arguments")
	if !ok {
		raw = []byte("{}")
	}
	if c.Tool == nil {
		raw = wire.Without(nil, c.Params, func(member string) bool { return member == wire.MemberMeta })
	}
	var b strings.Builder
	for len(raw) > 0 {
		r, n := utf8.DecodeRune(raw)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x{%02x}`, raw[0])
		case r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) && !unicode.Is(unicode.Variation_Selector, r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
		raw = raw[n:]
	}
	return b.String()
}
