package page

import (
	"strconv"

	"github.com/summit-switchboard/switchboard/internal/admin"
)

// A taskScene is the data of the view Tasks.
type taskScene struct {
	Tasks []admin.TaskOffer
	Next  string
}

// taskAddress returns the address of the list that the view shows.
func taskAddress(q *viewQuery) string {
	return linkTo("/v1/tasks", nil, "tenant", q.state.Get("tenant"), "after", q.state.Get("after"), "limit", strconv.Itoa(maxNames))
}
