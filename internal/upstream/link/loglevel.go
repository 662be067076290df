package link

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/upstream/task"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A logLevelSetter sets the log level of a legacy server.
type logLevelSetter struct {
	link *Link

	mu   sync.Mutex
	rank int           // of the level that was requested from the server; 0 means none
	set  chan struct{} // closed when the server has set it
}

// raise makes a legacy server send log messages of the rank. The server is set once to the
// most verbose level that any call has wanted. Messages are then filtered by call. On pipes the
// server reads the request before the call. On other ports the call waits for the response, but
// only for logLevelWait, since nothing else depends on it.
func (s *logLevelSetter) raise(rank int) {
	if rank == 0 || s.link.Hello().Modern() || !s.link.Hello().takesLogLevel {
		return
	}
	s.mu.Lock()
	wanted := s.rank == 0 || rank < s.rank
	if wanted {
		s.rank, s.set = rank, make(chan struct{})
	}
	levelled := s.set
	s.mu.Unlock()
	if wanted {
		s.request(rank, levelled)
	}
	select {
	case <-levelled:
	default:
		task.WaitFor(levelled, logLevelWait)
	}
}

// request sends logging/setLevel, and closes done when calls may rely on it.
func (s *logLevelSetter) request(rank int, done chan<- struct{}) {
	params := append(wire.AppendString([]byte(`{"level":`), logLevels[rank-1]), '}')
	f := s.link.newRequest(wire.MethodSetLevel, params)
	if _, ok := s.link.port.(*stdioPort); !ok {
		go func() {
			defer close(done)
			ctx, cancel := context.WithTimeout(context.Background(), LogLevelTimeout)
			defer cancel()
			if err := s.link.roundTrip(ctx, f, nil); err != nil {
				s.link.log.Debug("a server's log level was not set", "error", err)
			}
		}()
		return
	}
	defer close(done)
	if s.link.send(f) != nil {
		return
	}
	time.AfterFunc(LogLevelTimeout, func() {
		s.link.abandon(f)
		s.link.Requests.remove(f)
	})
}

// logLevels are the levels of log messages, least severe first. The rank of a level is its index
// plus 1.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func logLevelRank(level string) int { return slices.Index(logLevels, level) + 1 }
