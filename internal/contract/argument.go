package contract

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Arguments checks the arguments of calls against the input schemas of their tools. If an object in the arguments
// plainly does not fit, Arguments refuses the call with SB-CAP-003 before next can send anything: a required member is
// missing, or a member is unknown and the schema allows no others. It does not refuse other mismatches, because many
// servers accept "5" for 5. If the server answers such a call with an error, Arguments adds the part of the schema to
// the answer. check returns the current strictness for a server.
func Arguments(check func(switchboard.ServerID) switchboard.InputCheck, next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Tool == nil {
			return next.Call(ctx, c)
		}
		how := check(c.Server)
		args := argumentsIn(c.Params)
		if how == switchboard.CheckOff {
			if err := checkFrozen(c.Tool, args); err != nil {
				return switchboard.Result{}, err
			}
			return next.Call(ctx, c)
		}
		if err := Check(how, c.Tool, args); err != nil {
			return switchboard.Result{}, err
		}
		r, err := next.Call(ctx, c)
		return addAdvice(schemasOf(c.Tool), args, r, err)
	})
}

// Check refuses arguments that do not fit the tool's input schema, with SB-CAP-003 and the part of the schema. how is
// the strictness. Empty arguments count as {}. While the tool is frozen, Check refuses members that the schema does not name, too.
func Check(how switchboard.InputCheck, tool *switchboard.Tool, args []byte) error {
	if err := checkFrozen(tool, args); err != nil || how == switchboard.CheckOff {
		return err
	}
	if len(args) == 0 {
		args = noArguments
	}
	d := schemasOf(tool)
	if u := d.form().findUnfilled(args); u != nil {
		return refuseArguments(u.Error(), shownPart(u.form.doc))
	}
	if how == switchboard.CheckStrict {
		if where, why := d.findMisfit(args); why != nil {
			return refuseArguments(why.Error(), where)
		}
	}
	return nil
}

// checkFrozen refuses members that the admitted input schema of a frozen tool does not name, whatever the server's strictness: what its server would make of them now, no
// proof has shown (design part 14, Pins).
func checkFrozen(tool *switchboard.Tool, args []byte) error {
	if tool.Admission == nil || !tool.Admission.Frozen || len(args) == 0 || tool.Provides != nil { // what provides it is checked, with the arguments that it gets
		return nil
	}
	closed, err := schemasOf(tool).closed()
	if err != nil {
		return refuseArguments("its server has changed the tool, and the admitted schema cannot be read: "+err.Error(), "")
	}
	path, found, err := closed.Unnamed(args)
	switch {
	case err != nil:
		return refuseArguments(err.Error(), "")
	case found:
		return refuseArguments(path+" is not named in the schema; its server has changed the tool, so until the change is accepted, only named arguments are sent", "")
	}
	return nil
}

var noArguments = []byte("{}")

// argumentsIn returns the arguments in the params of a call, as an object.
func argumentsIn(params []byte) []byte {
	if args, ok := wire.Field(params, "arguments"); ok {
		return args
	}
	return noArguments
}

// refuseArguments refuses a call with arguments that do not fit the part of the schema.
func refuseArguments(why, part string) error {
	e := switchboard.Refuse(switchboard.CodeBadArguments, "the arguments do not fit, so nothing was sent: %s", why)
	e.Unsent = true
	if part != "" {
		e.Hint = "the schema says: " + part
	}
	return e
}

// findMisfit returns why the arguments do not fit the whole schema, and the part of the schema that they do not fit. It
// returns nil if they fit.
func (d *toolSchemas) findMisfit(args []byte) (where string, why error) {
	s, err := d.input()
	if err != nil {
		return "", errors.New("the tool's schema cannot be read, so the arguments cannot be checked")
	}
	err = s.check(args)
	if m, ok := errors.AsType[*misfit](err); ok {
		return shownPart(partAt(d.form(), m.at)), m
	}
	return "", err
}

// partAt returns the schema of the value at this path, or of the nearest value around it.
func partAt(f *form, at []string) map[string]any {
	if f == nil {
		return nil
	}
	for _, name := range at {
		sub := f.members[name]
		if sub == nil {
			sub = f.items
		}
		if sub == nil {
			break
		}
		f = sub
	}
	return f.doc
}

// addAdvice adds the part of the schema that the arguments do not fit, either to a result that is an error, or to the
// JSON-RPC error for invalid params. It returns other answers unchanged.
func addAdvice(d *toolSchemas, args []byte, r switchboard.Result, err error) (switchboard.Result, error) {
	server, isServer := errors.AsType[*switchboard.ServerError](err)
	advisable := err == nil && isToolError(r) || isServer && invalidParams(server)
	if !advisable {
		return r, err
	}
	if _, unreadable := d.input(); unreadable != nil {
		return r, err
	}
	where, why := d.findMisfit(args)
	if why == nil || where == "" {
		return r, err
	}
	text := "Switchboard adds: the arguments do not fit the tool's schema, " + why.Error() + ". The schema says: " + where
	if err != nil {
		own := *server
		message, _ := wire.Field(own.Object, "message")
		said, _ := wire.String(message)
		own.Object = wire.Rewrite(nil, own.Object, wire.Edit{Name: "message", Value: wire.AppendString(nil, said+". "+text)})
		return r, &own
	}
	return withText(r, text), nil
}

func invalidParams(e *switchboard.ServerError) bool {
	code, _ := wire.Field(e.Object, "code")
	return string(code) == strconv.Itoa(wire.CodeInvalidParams)
}

// isToolError reports whether the result is an error of the tool.
func isToolError(r switchboard.Result) bool {
	o := r.Outline
	if o.End == 0 {
		o = wire.OutlineOf(r.JSON)
	}
	return slices.ContainsFunc(o.Members, func(m switchboard.Member) bool {
		return m.Name == wire.MemberError && string(r.JSON[m.Value:m.End]) == "true"
	})
}

// withText returns a copy of the result with one more text in its content.
func withText(r switchboard.Result, text string) switchboard.Result {
	content, ok := wire.Field(r.JSON, "content")
	if !ok || content[0] != '[' {
		return r
	}
	more := bytes.Clone(content[:len(content)-1])
	if len(bytes.TrimSpace(more)) > 1 {
		more = append(more, ',')
	}
	more = append(wire.AppendString(append(more, `{"type":"text","text":`...), text), "}]"...)
	own := r
	own.JSON = wire.Rewrite(nil, r.JSON, wire.Edit{Name: "content", Value: more})
	own.Outline, own.Spare, own.Release = switchboard.Outline{}, 0, nil
	if r.Release != nil {
		r.Release()
	}
	return own
}
