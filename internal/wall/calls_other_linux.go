//go:build linux && !amd64 && !arm64

package wall

import (
	"errors"
	"runtime"
)

func (o *Order) restrictCalls() error {
	return errors.New("there is no filter of system calls for " + runtime.GOARCH)
}
