package upstream

import "github.com/summit-switchboard/switchboard/internal/upstream/link"

// A deafPort accepts requests and does nothing.
type deafPort struct{}

func (deafPort) Start(*link.Request)         {}
func (deafPort) StartBlocking(*link.Request) {}
func (deafPort) Cancel(*link.Request, bool)  {}
func (deafPort) Post([]byte)                 {}
func (deafPort) ShutDown(<-chan struct{})    {}
