package sample

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// An itemTable holds items by the text of their key attribute.
type itemTable struct {
	Key   string
	Items map[string]jsonObject
}

func (t *itemTable) describe(name string) jsonObject {
	return jsonObject{"TableName": name, "KeyAttribute": t.Key, "ItemCount": len(t.Items)}
}

type tableArgs struct {
	Table string `json:"table"`
}

type itemKeyArgs struct {
	Table string `json:"table"`
	Key   string `json:"key"`
}

func (c *cloud) findTable(name string) (*itemTable, error) {
	return findThing(c.tables, "ResourceNotFoundException", "table", name)
}

// listPage returns at most asked matching items of t. If there are more, it also returns the key after
// which the next page begins.
func (t *itemTable) listPage(after string, asked int, fits func(key string, item jsonObject) bool) (any, error) {
	most, err := checkLimit("limit", asked, 50, 500)
	if err != nil {
		return nil, err
	}
	found, last := []jsonObject{}, ""
	for _, k := range sortedKeys(t.Items) {
		if k <= after && after != "" || !fits(k, t.Items[k]) {
			continue
		}
		if len(found) == most {
			return jsonObject{"Items": found, "Count": len(found), "LastEvaluatedKey": last}, nil
		}
		found, last = append(found, t.Items[k]), k
	}
	return jsonObject{"Items": found, "Count": len(found)}, nil
}

// dynamoService has the tools for tables.
type dynamoService struct{ *cloud }

func (c dynamoService) listTables(struct{}) (any, error) {
	return jsonObject{"TableNames": sortedKeys(c.tables)}, nil
}

func (c dynamoService) describeTable(a tableArgs) (any, error) {
	t, err := c.findTable(a.Table)
	if err != nil {
		return nil, err
	}
	return t.describe(a.Table), nil
}

func (c dynamoService) createTable(a struct {
	Table string `json:"table"`
	Key   string `json:"key_attribute"`
},
) (any, error) {
	if err := checkName("table", a.Table, plainName); err != nil {
		return nil, err
	}
	if err := checkName("attribute", a.Key, plainName); err != nil {
		return nil, err
	}
	if err := checkFree(c.tables, "ResourceInUseException", "table", a.Table); err != nil {
		return nil, err
	}
	if err := c.reserve(); err != nil {
		return nil, err
	}
	t := &itemTable{Key: a.Key, Items: map[string]jsonObject{}}
	c.tables[a.Table] = t
	return t.describe(a.Table), nil
}

func (c dynamoService) deleteTable(a tableArgs) (any, error) {
	t, err := c.findTable(a.Table)
	if err != nil {
		return nil, err
	}
	delete(c.tables, a.Table)
	c.used -= 1 + len(t.Items)
	return t.describe(a.Table), nil
}

func (c dynamoService) putItem(a struct {
	Table string     `json:"table"`
	Item  jsonObject `json:"item"`
},
) (any, error) {
	t, err := c.findTable(a.Table)
	if err != nil {
		return nil, err
	}
	key, ok := a.Item[t.Key].(string)
	if !ok || key == "" || len(key) > maxKey {
		return nil, fmt.Errorf("ValidationException: the item needs its key attribute %q, a text of 1 to %d bytes", t.Key, maxKey)
	}
	raw, err := json.Marshal(a.Item)
	if err != nil {
		return nil, err
	}
	if err := checkBody("the item", string(raw)); err != nil {
		return nil, err
	}
	old, there := t.Items[key]
	if !there {
		if err := c.reserve(); err != nil {
			return nil, err
		}
	}
	t.Items[key] = a.Item
	return jsonObject{"Replaced": old}, nil
}

func (c dynamoService) getItem(a itemKeyArgs) (any, error) {
	t, err := c.findTable(a.Table)
	if err != nil {
		return nil, err
	}
	i, err := findThing(t.Items, "ItemNotFound", "item", a.Key)
	if err != nil {
		return nil, err
	}
	return jsonObject{"Item": i}, nil
}

func (c dynamoService) deleteItem(a itemKeyArgs) (any, error) {
	t, err := c.findTable(a.Table)
	if err != nil {
		return nil, err
	}
	i, err := findThing(t.Items, "ItemNotFound", "item", a.Key)
	if err != nil {
		return nil, err
	}
	delete(t.Items, a.Key)
	c.used--
	return jsonObject{"Deleted": i}, nil
}

func (c dynamoService) query(a struct {
	Table  string `json:"table"`
	Prefix string `json:"key_prefix"`
	After  string `json:"after,omitempty"`
	Limit  int    `json:"limit,omitempty"`
},
) (any, error) {
	t, err := c.findTable(a.Table)
	if err != nil {
		return nil, err
	}
	return t.listPage(a.After, a.Limit, func(k string, _ jsonObject) bool { return strings.HasPrefix(k, a.Prefix) })
}

func (c dynamoService) scan(a struct {
	Table  string     `json:"table"`
	Equals jsonObject `json:"equals,omitempty"`
	After  string     `json:"after,omitempty"`
	Limit  int        `json:"limit,omitempty"`
},
) (any, error) {
	t, err := c.findTable(a.Table)
	if err != nil {
		return nil, err
	}
	return t.listPage(a.After, a.Limit, func(_ string, item jsonObject) bool {
		for name, want := range a.Equals {
			if has, ok := item[name]; !ok || !reflect.DeepEqual(has, want) {
				return false
			}
		}
		return true
	})
}
