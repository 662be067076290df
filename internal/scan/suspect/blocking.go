package suspect

import (
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// FindBlocking returns the id of the first Blocking rule that finds something in a definition, or "". definition is an object of tools/list, prompts/list or
// resources/templates/list, or any other JSON value. It costs less than Find.
func FindBlocking(definition []byte) string {
	s := &scanner{seen: map[[2]string]bool{}}
	found := ""
	eachText(string(definition), func(at textPlace, spelling string, _ bool) {
		if found != "" || isPlain(spelling) && !strings.Contains(spelling, `\`) {
			return
		}
		text := unquote(spelling)
		if isPlain(text) {
			return
		}
		s.lookAtCharacters(at, text)
		for _, f := range s.found {
			if f.Tier == Blocking {
				found = f.Rule
			}
		}
		s.found = s.found[:0]
	})
	return found
}

// Imitated returns a peer with a name that looks like the name of the tool and is another one. This is a Blocking finding, too.
func (p *Peers) Imitated(id switchboard.ToolID) (rule string, of switchboard.ToolID) {
	if of, ok := p.imitated(id); ok {
		return ruleName, of
	}
	return "", switchboard.ToolID{}
}
