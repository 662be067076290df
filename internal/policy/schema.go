package policy

import (
	_ "embed"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// Schema is the JSON Schema of input. A path that it does not have is a fault
// when a policy is compiled: at run time it would be undefined, and a veto that
// reads it would never fire.
//
//go:embed input.schema.json
var Schema []byte

// Schemas is Schema as OPA takes it.
func Schemas() *ast.SchemaSet {
	var v any
	if err := util.UnmarshalJSON(Schema, &v); err != nil {
		panic("input.schema.json: " + err.Error()) // a test compiles with it
	}
	s := ast.NewSchemaSet()
	s.Put(ast.SchemaRootRef, v)
	return s
}
