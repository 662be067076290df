package contract

import (
	"context"
	"errors"
	"fmt"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Results holds the results of next to the output schemas of their tools: one
// that does not fit is a failure of the server's. Tools without one cost
// nothing, and neither do answers that say that they are errors or that more is
// to be asked. A schema that cannot be compiled is not held against a result.
func Results(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		r, err := next.Call(ctx, c)
		if err != nil || c.Tool == nil || !c.Tool.Structured {
			return r, err
		}
		if err := fits(c, r.JSON); err != nil {
			if r.Release != nil {
				r.Release()
			}
			return switchboard.Result{}, err
		}
		return r, nil
	})
}

// fits says why the result is none that the call's tool may give, or nil.
func fits(c *switchboard.Call, result []byte) error {
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
				return nil // not the result yet; of who takes such, the gateway knows
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
			return nil // the result is to be fetched later
		}
	}
	s, err := definitionOf(c.Tool).output()
	if err != nil {
		return nil //nolint:nilerr // see Results
	}
	switch found {
	case 0:
		return unfit(c, errors.New("structuredContent is missing, though the tool has an output schema"))
	case 1:
		if err := s.check(structured); err != nil {
			return unfit(c, fmt.Errorf("structuredContent: %w", err))
		}
		return nil
	}
	return unfit(c, errors.New("structuredContent stands there twice"))
}

func unfit(c *switchboard.Call, err error) error {
	return &switchboard.Error{
		Code: switchboard.CodeResultInvalid, ServerFailed: true,
		Text:  "the tool was executed, but its result is not what its output schema promises: " + err.Error(),
		Cause: fmt.Errorf("tool %s", c.Tool.ID),
	}
}
