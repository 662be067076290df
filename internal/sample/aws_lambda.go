package sample

import (
	"encoding/json"
	"fmt"
	"strings"
)

// maxConfig bounds one value of a function's configuration, in bytes.
const maxConfig = 4096

// A function is code that the cloud runs. The code is one of a few handlers
// that are part of the program.
type function struct {
	Name    string            `json:"FunctionName"`
	Handler string            `json:"Handler"`
	Config  map[string]string `json:"Environment"`
	Version int               `json:"Version"` // counts changes
	Invoked int               `json:"Invocations"`
	Failed  int               `json:"Errors"`
}

// handlers are what a function can do with a payload.
var handlers = map[string]func(config map[string]string, payload object) (any, error){
	"echo": func(_ map[string]string, p object) (any, error) { return p, nil },
	"sum": func(_ map[string]string, p object) (any, error) {
		numbers, ok := p["numbers"].([]any)
		if !ok {
			return nil, fmt.Errorf("payload has no list %q", "numbers")
		}
		sum := 0.0
		for _, n := range numbers {
			f, ok := n.(float64)
			if !ok {
				return nil, fmt.Errorf("%v is no number", n)
			}
			sum += f
		}
		return object{"sum": sum}, nil
	},
	"template": func(config map[string]string, p object) (any, error) {
		text := config["template"]
		for _, k := range sorted(p) {
			s, ok := p[k].(string)
			if !ok {
				return nil, fmt.Errorf("%q is no text", k)
			}
			hole := "{{" + k + "}}"
			if len(text)+strings.Count(text, hole)*len(s) > maxBody {
				return nil, fmt.Errorf("the text grows over %d bytes", maxBody)
			}
			text = strings.ReplaceAll(text, hole, s)
		}
		return object{"text": text}, nil
	},
}

type functionArgs struct {
	Name string `json:"function_name" jsonschema:"name of the function"`
}

func (c *cloud) function(name string) (*function, error) {
	return get(c.functions, "ResourceNotFoundException", "function", name)
}

func checkConfig(config map[string]string) error {
	if len(config) > maxTags {
		return fmt.Errorf("InvalidParameterValue: %d variables; at most %d are allowed", len(config), maxTags)
	}
	for k, v := range config {
		if len(k) > 128 || len(v) > maxConfig {
			return fmt.Errorf("InvalidParameterValue: variable %.40q: want a name of at most 128 bytes and a value of at most %d", k, maxConfig)
		}
	}
	return nil
}

// addLambda puts the tools for functions on the bench.
func (c *cloud) addLambda(b *bench) {
	on(c, b, readsCloud, "lambda_list_functions", "List the functions of the account.", func(struct{}) (any, error) {
		return object{"Functions": sorted(c.functions)}, nil
	})
	on(c, b, readsCloud, "lambda_list_handlers", "List the handlers that a function can be made of.", func(struct{}) (any, error) {
		return object{"Handlers": sorted(handlers)}, nil
	})
	on(c, b, readsCloud, "lambda_get_function", "Describe a function and how often it was invoked.", func(a functionArgs) (any, error) {
		return c.function(a.Name)
	})
	on(c, b, writesCloud, "lambda_create_function", "Create a function.", func(a struct {
		Name    string            `json:"function_name" jsonschema:"name of the function"`
		Handler string            `json:"handler" jsonschema:"what it does, as lambda_list_handlers tells"`
		Config  map[string]string `json:"environment,omitempty" jsonschema:"variables that the handler reads"`
	},
	) (any, error) {
		if err := checkName("function", a.Name, plainName); err != nil {
			return nil, err
		}
		if err := free(c.functions, "ResourceConflictException", "function", a.Name); err != nil {
			return nil, err
		}
		if _, err := get(handlers, "InvalidParameterValue", "handler", a.Handler); err != nil {
			return nil, err
		}
		if err := checkConfig(a.Config); err != nil {
			return nil, err
		}
		if err := c.take(); err != nil {
			return nil, err
		}
		f := &function{Name: a.Name, Handler: a.Handler, Config: tagsOf(a.Config), Version: 1}
		c.functions[a.Name] = f
		return f, nil
	})
	on(c, b, writesCloud, "lambda_update_configuration", "Set a function's variables, in place of those that it has.", func(a struct {
		Name   string            `json:"function_name" jsonschema:"name of the function"`
		Config map[string]string `json:"environment" jsonschema:"all variables"`
	},
	) (any, error) {
		f, err := c.function(a.Name)
		if err != nil {
			return nil, err
		}
		if err := checkConfig(a.Config); err != nil {
			return nil, err
		}
		f.Config = tagsOf(a.Config)
		f.Version++
		return f, nil
	})
	on(c, b, destroysCloud, "lambda_delete_function", "Delete a function.", func(a functionArgs) (any, error) {
		if _, err := c.function(a.Name); err != nil {
			return nil, err
		}
		delete(c.functions, a.Name)
		c.things--
		return object{"Deleted": a.Name}, nil
	})
	on(c, b, runsInCloud, "lambda_invoke", "Invoke a function and wait for its answer.", func(a struct {
		Name    string `json:"function_name" jsonschema:"name of the function"`
		Payload object `json:"payload,omitempty" jsonschema:"what the function is given"`
	},
	) (any, error) {
		f, err := c.function(a.Name)
		if err != nil {
			return nil, err
		}
		if raw, err := json.Marshal(a.Payload); err != nil || len(raw) > maxBody {
			return nil, fmt.Errorf("RequestTooLarge: the payload has %d bytes; at most %d are allowed", len(raw), maxBody)
		}
		f.Invoked++
		answer, err := handlers[f.Handler](f.Config, a.Payload)
		if err != nil {
			f.Failed++
			c.log("/lambda/"+f.Name, "error: "+err.Error())
			return nil, fmt.Errorf("FunctionError: %w", err)
		}
		c.log("/lambda/"+f.Name, "ok")
		return object{"StatusCode": 200, "Payload": answer}, nil
	})
}
