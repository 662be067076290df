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

// Arguments holds the arguments of calls to the input schemas of their tools. It refuses a
// call with SB-CAP-003, before next can send anything, if an object in the arguments plainly
// does not fit: a required member is missing, or a member is unknown and the schema allows no
// others. It does not refuse other mismatches, because many servers accept "5" for 5; if the
// server answers such a call with an error, Arguments adds the part of the schema to the
// answer. check says how strict it is for a server now.
func Arguments(check func(switchboard.ServerID) switchboard.InputCheck, next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Tool == nil {
			return next.Call(ctx, c)
		}
		how := check(c.Server)
		if how == switchboard.CheckOff {
			return next.Call(ctx, c)
		}
		args := argumentsIn(c.Params)
		if err := Check(how, c.Tool, args); err != nil {
			return switchboard.Result{}, err
		}
		r, err := next.Call(ctx, c)
		return advise(definitionOf(c.Tool), args, r, err)
	})
}

// Check refuses arguments that do not fit the tool's input schema, as strictly as how says: with
// SB-CAP-003 and the part of the schema. Empty arguments stand for {}.
func Check(how switchboard.InputCheck, tool *switchboard.Tool, args []byte) error {
	if how == switchboard.CheckOff {
		return nil
	}
	if len(args) == 0 {
		args = noArguments
	}
	d := definitionOf(tool)
	if u := d.form().check(args); u != nil {
		return misused(u.Error(), part(u.form.doc))
	}
	if how == switchboard.CheckStrict {
		if where, why := d.misuse(args); why != nil {
			return misused(why.Error(), where)
		}
	}
	return nil
}

var noArguments = []byte("{}")

// argumentsIn are those that stand in the params of a call, an object.
func argumentsIn(params []byte) []byte {
	if args, ok := wire.Field(params, "arguments"); ok {
		return args
	}
	return noArguments
}

// misused refuses a call whose arguments do not fit the part of the schema.
func misused(why, part string) error {
	e := switchboard.Refuse(switchboard.CodeBadArguments, "the arguments do not fit, so nothing was sent: %s", why)
	e.Unsent = true
	if part != "" {
		e.Hint = "the schema says: " + part
	}
	return e
}

// misuse says why the arguments do not fit the whole schema, and which part of it they do not
// fit; nil where they do.
func (d *definition) misuse(args []byte) (where string, why error) {
	s, err := d.input()
	if err != nil {
		return "", errors.New("the tool's schema cannot be read, so nobody can tell what fits")
	}
	err = s.check(args)
	if m, ok := errors.AsType[*misfit](err); ok {
		return part(partAt(d.form(), m.at)), m
	}
	return "", err
}

// partAt is the schema of the value at that place, or of what is around it.
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

// advise adds the part of the schema that the arguments do not fit to a result that is an
// error, and to the error for invalid params. It returns other answers as they are.
func advise(d *definition, args []byte, r switchboard.Result, err error) (switchboard.Result, error) {
	server, isServer := errors.AsType[*switchboard.ServerError](err)
	advisable := err == nil && failed(r) || isServer && invalidParams(server)
	if !advisable {
		return r, err
	}
	if _, unreadable := d.input(); unreadable != nil {
		return r, err
	}
	where, why := d.misuse(args)
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

// failed reports whether the result says that the tool has failed.
func failed(r switchboard.Result) bool {
	o := r.Outline
	if o.End == 0 {
		o = wire.OutlineOf(r.JSON)
	}
	return slices.ContainsFunc(o.Members, func(m switchboard.Member) bool {
		return m.Name == wire.MemberError && string(r.JSON[m.Value:m.End]) == "true"
	})
}

// withText returns the result with one more text in its content, in memory of its own.
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
