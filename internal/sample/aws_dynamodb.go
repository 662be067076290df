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
	Table string `json:"table" jsonschema:"name of the table"`
}

type itemKeyArgs struct {
	Table string `json:"table" jsonschema:"name of the table"`
	Key   string `json:"key" jsonschema:"value of the key attribute"`
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

// addDynamoDB adds the tools for tables.
func (c *cloud) addDynamoDB(b *sampleServer) {
	addCloudTool(c, b, cloudRead, "dynamodb_list_tables", "List the tables of the account.", func(struct{}) (any, error) {
		return jsonObject{"TableNames": sortedKeys(c.tables)}, nil
	})
	addCloudTool(c, b, cloudRead, "dynamodb_describe_table", "Describe a table.", func(a tableArgs) (any, error) {
		t, err := c.findTable(a.Table)
		if err != nil {
			return nil, err
		}
		return t.describe(a.Table), nil
	})
	addCloudTool(c, b, cloudWrite, "dynamodb_create_table", "Create a table.", func(a struct {
		Table string `json:"table" jsonschema:"name of the table"`
		Key   string `json:"key_attribute" jsonschema:"name of the attribute that tells items apart; its values are texts"`
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
	})
	addCloudTool(c, b, cloudDestroy, "dynamodb_delete_table", "Delete a table with all its items.", func(a tableArgs) (any, error) {
		t, err := c.findTable(a.Table)
		if err != nil {
			return nil, err
		}
		delete(c.tables, a.Table)
		c.used -= 1 + len(t.Items)
		return t.describe(a.Table), nil
	})
	addCloudTool(c, b, cloudWrite, "dynamodb_put_item", "Store an item. One of the same key is replaced.", func(a struct {
		Table string     `json:"table" jsonschema:"name of the table"`
		Item  jsonObject `json:"item" jsonschema:"the item, with its key attribute"`
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
	})
	addCloudTool(c, b, cloudRead, "dynamodb_get_item", "Read one item by its key.", func(a itemKeyArgs) (any, error) {
		t, err := c.findTable(a.Table)
		if err != nil {
			return nil, err
		}
		i, err := findThing(t.Items, "ItemNotFound", "item", a.Key)
		if err != nil {
			return nil, err
		}
		return jsonObject{"Item": i}, nil
	})
	addCloudTool(c, b, cloudDestroy, "dynamodb_delete_item", "Delete one item by its key.", func(a itemKeyArgs) (any, error) {
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
	})
	addCloudTool(c, b, cloudRead, "dynamodb_query", "Read the items whose key begins with a text, in the order of their keys.", func(a struct {
		Table  string `json:"table" jsonschema:"name of the table"`
		Prefix string `json:"key_prefix" jsonschema:"what the key begins with"`
		After  string `json:"after,omitempty" jsonschema:"the LastEvaluatedKey of the page before"`
		Limit  int    `json:"limit,omitempty" jsonschema:"at most so many, 1 to 500; 50 if not given"`
	},
	) (any, error) {
		t, err := c.findTable(a.Table)
		if err != nil {
			return nil, err
		}
		return t.listPage(a.After, a.Limit, func(k string, _ jsonObject) bool { return strings.HasPrefix(k, a.Prefix) })
	})
	addCloudTool(c, b, cloudRead, "dynamodb_scan", "Read all items, or those with a given attribute, in the order of their keys.", func(a struct {
		Table  string     `json:"table" jsonschema:"name of the table"`
		Equals jsonObject `json:"equals,omitempty" jsonschema:"attributes that an item must have, and their values"`
		After  string     `json:"after,omitempty" jsonschema:"the LastEvaluatedKey of the page before"`
		Limit  int        `json:"limit,omitempty" jsonschema:"at most so many, 1 to 500; 50 if not given"`
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
	})
}
