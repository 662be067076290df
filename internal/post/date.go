package post

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A dateText is the value of a Date header, and the second that it is for.
type dateText struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[dateText]

// date returns the value of a Date header for now.
func date() string {
	now := time.Now()
	d := lastDate.Load()
	if d == nil || d.second != now.Unix() {
		d = &dateText{now.Unix(), now.UTC().Format(http.TimeFormat)}
		lastDate.Store(d)
	}
	return d.text
}
