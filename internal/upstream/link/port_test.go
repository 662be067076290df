package link

// A deafPort accepts requests and does nothing.
type deafPort struct{}

func (deafPort) Start(*Request)           {}
func (deafPort) StartBlocking(*Request)   {}
func (deafPort) Cancel(*Request, bool)    {}
func (deafPort) Post([]byte)              {}
func (deafPort) ShutDown(<-chan struct{}) {}

// startAsync runs f in a goroutine and returns a channel for its error.
func startAsync(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	return ended
}
