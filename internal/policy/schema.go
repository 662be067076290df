package policy

import (
	_ "embed"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// Schema is the JSON Schema of input. A policy that reads a path which is not in the schema does
// not compile. At run time that path would be undefined, and a veto that reads it would never fire.
//
//go:embed input.schema.json
var Schema []byte

// Schemas returns Schema in the form that OPA takes.
func Schemas() *ast.SchemaSet {
	var v any
	if err := util.UnmarshalJSON(Schema, &v); err != nil {
		panic("input.schema.json: " + err.Error()) // a test compiles with it, so this cannot happen
	}
	s := ast.NewSchemaSet()
	s.Put(ast.SchemaRootRef, v)
	return s
}
