package admission

import "encoding/json"

func ComparePrompts(admitted, offered json.RawMessage) (Class, []Difference)      { return Words, nil }
func CompareTemplates(admitted, offered json.RawMessage) (Class, []Difference)    { return Words, nil }
func CompareInstructions(admitted, offered json.RawMessage) (Class, []Difference) { return Words, nil }
