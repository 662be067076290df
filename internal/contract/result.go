package contract

import (
	"context"
	"errors"
	"fmt"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Results checks the results of next against the output schemas of their tools. A result that does not fit is a failure
// of the server. A tool without an output schema costs nothing, and neither does an answer that is an error or asks for
// more input. If a schema cannot be compiled, results are not checked against it.
func Results(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		r, err := next.Call(ctx, c)
		if err != nil || c.Tool == nil || !c.Tool.Structured {
			return r, err
		}
		if err := checkResult(c, r.JSON); err != nil {
			if r.Release != nil {
				r.Release()
			}
			return switchboard.Result{}, err
		}
		return r, nil
	})
}

// checkResult returns why the result does not fit the output schema of the call's tool, or nil.
func checkResult(c *switchboard.Call, result []byte) error {
	var structured []byte
	found, failed, task := 0, false, false
	for name, value := range wire.Members(result) {
		switch name {
		case "structuredContent":
			structured = value
			found++
		case wire.MemberError:
			failed = string(value) == "true"
		case wire.MemberResultType:
			if kind, ok := wire.String(value); !ok || kind != "complete" {
				return nil // not a final result; the gateway knows whether the client accepts it
			}
		case "task":
			task = true
		}
	}
	if failed {
		return nil
	}
	if found == 0 && task {
		if _, asked := wire.Field(c.Params, "task"); asked {
			return nil // the client fetches the result later
		}
	}
	s, err := schemasOf(c.Tool).output()
	if err != nil {
		return nil //nolint:nilerr // see Results
	}
	switch found {
	case 0:
		return resultError(c, errors.New("structuredContent is missing, though the tool has an output schema"))
	case 1:
		if err := s.check(structured); err != nil {
			return resultError(c, fmt.Errorf("structuredContent: %w", err))
		}
		return nil
	}
	return resultError(c, errors.New("structuredContent is there twice"))
}

func resultError(c *switchboard.Call, err error) error {
	return &switchboard.Error{
		Code: switchboard.CodeResultInvalid, ServerFailed: true,
		Text:  "the tool was executed, but its result is not what its output schema promises: " + err.Error(),
		Cause: fmt.Errorf("tool %s", c.Tool.ID),
	}
}
