package served_test

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// The key and the state with which a modern fake asks.
const (
	fakeKey   = `k\u00e9y`
	fakeState = `"st\u0061te \/ 1.0"`
)

// ask asks the client of a legacy fake, and gives the whole answer.
func (f *fake) ask(method, params string, say func([]byte)) []byte {
	answer := make(chan []byte, 1)
	f.state.Lock()
	f.asked++
	id := fmt.Sprintf(`"q%d"`, f.asked)
	f.answers[id] = answer
	f.state.Unlock()
	say(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return <-answer
}

// question asks the client as the era does: by a request, or by a result that is
// none yet. It returns the text of the result, or else the result itself.
func (f *fake) question(q *fakeRequest, method, params string, say func([]byte)) (text, result []byte) {
	var steps string
	_ = json.Unmarshal(q.Params.Arguments["steps"], &steps)
	n, _ := strconv.Atoi(steps)
	for i := range n {
		say(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, q.Params.Meta["progressToken"], i))
	}
	switch {
	case !f.modern:
		return f.ask(method, params, say), nil
	case q.Params.State == nil:
		return nil, fmt.Appendf(nil, `{"resultType":"input_required","inputRequests":{"%s":{"method":%q,"params":%s}},"requestState":%s}`, fakeKey, method, params, fakeState)
	}
	return fmt.Appendf(nil, "%s %s", q.Params.State, q.Params.Answers), nil
}

// textOf is a result that says text.
func (f *fake) textOf(text []byte) string {
	quoted, _ := json.Marshal(string(text))
	extra := ""
	if f.modern {
		extra = `,"resultType":"complete"`
	}
	return `{"content":[{"type":"text","text":` + string(quoted) + `}]` + extra + `}`
}
