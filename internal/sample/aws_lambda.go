package sample

import (
	"encoding/json"
	"fmt"
	"strings"
)

// maxConfig limits one value of a function's configuration, in bytes.
const maxConfig = 4096

// A function is code that the cloud runs. The code is one of the built-in handlers.
type function struct {
	Name    string            `json:"FunctionName"`
	Handler string            `json:"Handler"`
	Config  map[string]string `json:"Environment"`
	Version int               `json:"Version"` // counts changes
	Invoked int               `json:"Invocations"`
	Failed  int               `json:"Errors"`
}

// handlers are the built-in handlers of functions, by name.
var handlers = map[string]func(config map[string]string, payload jsonObject) (any, error){
	"echo": func(_ map[string]string, p jsonObject) (any, error) { return p, nil },
	"sum": func(_ map[string]string, p jsonObject) (any, error) {
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
		return jsonObject{"sum": sum}, nil
	},
	"template": func(config map[string]string, p jsonObject) (any, error) {
		text := config["template"]
		for _, k := range sortedKeys(p) {
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
		return jsonObject{"text": text}, nil
	},
}

type functionArgs struct {
	Name string `json:"function_name"`
}

func (c *cloud) findFunction(name string) (*function, error) {
	return findThing(c.functions, "ResourceNotFoundException", "function", name)
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

// lambdaService has the tools for functions.
type lambdaService struct{ *cloud }

func (c lambdaService) listFunctions(struct{}) (any, error) {
	return jsonObject{"Functions": sortedKeys(c.functions)}, nil
}

func (c lambdaService) listHandlers(struct{}) (any, error) {
	return jsonObject{"Handlers": sortedKeys(handlers)}, nil
}

func (c lambdaService) getFunction(a functionArgs) (any, error) {
	return c.findFunction(a.Name)
}

func (c lambdaService) createFunction(a struct {
	Name    string            `json:"function_name"`
	Handler string            `json:"handler"`
	Config  map[string]string `json:"environment,omitempty"`
},
) (any, error) {
	if err := checkName("function", a.Name, plainName); err != nil {
		return nil, err
	}
	if err := checkFree(c.functions, "ResourceConflictException", "function", a.Name); err != nil {
		return nil, err
	}
	if _, err := findThing(handlers, "InvalidParameterValue", "handler", a.Handler); err != nil {
		return nil, err
	}
	if err := checkConfig(a.Config); err != nil {
		return nil, err
	}
	if err := c.reserve(); err != nil {
		return nil, err
	}
	f := &function{Name: a.Name, Handler: a.Handler, Config: nonNilMap(a.Config), Version: 1}
	c.functions[a.Name] = f
	return f, nil
}

func (c lambdaService) updateConfiguration(a struct {
	Name   string            `json:"function_name"`
	Config map[string]string `json:"environment"`
},
) (any, error) {
	f, err := c.findFunction(a.Name)
	if err != nil {
		return nil, err
	}
	if err := checkConfig(a.Config); err != nil {
		return nil, err
	}
	f.Config = nonNilMap(a.Config)
	f.Version++
	return f, nil
}

func (c lambdaService) deleteFunction(a functionArgs) (any, error) {
	if _, err := c.findFunction(a.Name); err != nil {
		return nil, err
	}
	delete(c.functions, a.Name)
	c.used--
	return jsonObject{"Deleted": a.Name}, nil
}

func (c lambdaService) invoke(a struct {
	Name    string     `json:"function_name"`
	Payload jsonObject `json:"payload,omitempty"`
},
) (any, error) {
	f, err := c.findFunction(a.Name)
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
		c.appendLog("/lambda/"+f.Name, "error: "+err.Error())
		return nil, fmt.Errorf("FunctionError: %w", err)
	}
	c.appendLog("/lambda/"+f.Name, "ok")
	return jsonObject{"StatusCode": 200, "Payload": answer}, nil
}
