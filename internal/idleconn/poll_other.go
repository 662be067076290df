//go:build !linux

package idleconn

import (
	"errors"
	"syscall"
)

// A poller exists only on Linux. Elsewhere net/http has all connections.
type poller struct{}

func newPoller() (*poller, error)                 { return nil, errors.ErrUnsupported }
func (*poller) close()                            {}
func (*poller) add(syscall.RawConn, uint64) error { return errors.ErrUnsupported }
func (*poller) remove(syscall.RawConn)            {}
func (*poller) wait() ([]uint64, error)           { return nil, errors.ErrUnsupported }
