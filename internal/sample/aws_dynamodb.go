package sample

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// A table holds items by the text of their key attribute.
type table struct {
	Key   string
	Items map[string]object
}

func (t *table) describe(name string) object {
	return object{"TableName": name, "KeyAttribute": t.Key, "ItemCount": len(t.Items)}
}

type tableArgs struct {
	Table string `json:"table" jsonschema:"name of the table"`
}

type itemKeyArgs struct {
	Table string `json:"table" jsonschema:"name of the table"`
	Key   string `json:"key" jsonschema:"value of the key attribute"`
}

func (c *cloud) table(name string) (*table, error) {
	return get(c.tables, "ResourceNotFoundException", "table", name)
}

// page gives the items of t that fit, at most so many, and the key to go on
// after where there are more.
func (t *table) page(after string, asked int, fits func(key string, item object) bool) (any, error) {
	most, err := limit("limit", asked, 50, 500)
	if err != nil {
		return nil, err
	}
	found, last := []object{}, ""
	for _, k := range sorted(t.Items) {
		if k <= after && after != "" || !fits(k, t.Items[k]) {
			continue
		}
		if len(found) == most {
			return object{"Items": found, "Count": len(found), "LastEvaluatedKey": last}, nil
		}
		found, last = append(found, t.Items[k]), k
	}
	return object{"Items": found, "Count": len(found)}, nil
}

// addDynamoDB puts the tools for tables on the bench.
func (c *cloud) addDynamoDB(b *bench) {
	on(c, b, readsCloud, "dynamodb_list_tables", "List the tables of the account.", func(struct{}) (any, error) {
		return object{"TableNames": sorted(c.tables)}, nil
	})
	on(c, b, readsCloud, "dynamodb_describe_table", "Describe a table.", func(a tableArgs) (any, error) {
		t, err := c.table(a.Table)
		if err != nil {
			return nil, err
		}
		return t.describe(a.Table), nil
	})
	on(c, b, writesCloud, "dynamodb_create_table", "Create a table.", func(a struct {
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
		if err := free(c.tables, "ResourceInUseException", "table", a.Table); err != nil {
			return nil, err
		}
		if err := c.take(); err != nil {
			return nil, err
		}
		t := &table{Key: a.Key, Items: map[string]object{}}
		c.tables[a.Table] = t
		return t.describe(a.Table), nil
	})
	on(c, b, destroysCloud, "dynamodb_delete_table", "Delete a table with all its items.", func(a tableArgs) (any, error) {
		t, err := c.table(a.Table)
		if err != nil {
			return nil, err
		}
		delete(c.tables, a.Table)
		c.things -= 1 + len(t.Items)
		return t.describe(a.Table), nil
	})
	on(c, b, writesCloud, "dynamodb_put_item", "Store an item. One of the same key is replaced.", func(a struct {
		Table string `json:"table" jsonschema:"name of the table"`
		Item  object `json:"item" jsonschema:"the item, with its key attribute"`
	},
	) (any, error) {
		t, err := c.table(a.Table)
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
			if err := c.take(); err != nil {
				return nil, err
			}
		}
		t.Items[key] = a.Item
		return object{"Replaced": old}, nil
	})
	on(c, b, readsCloud, "dynamodb_get_item", "Read one item by its key.", func(a itemKeyArgs) (any, error) {
		t, err := c.table(a.Table)
		if err != nil {
			return nil, err
		}
		i, err := get(t.Items, "ItemNotFound", "item", a.Key)
		if err != nil {
			return nil, err
		}
		return object{"Item": i}, nil
	})
	on(c, b, destroysCloud, "dynamodb_delete_item", "Delete one item by its key.", func(a itemKeyArgs) (any, error) {
		t, err := c.table(a.Table)
		if err != nil {
			return nil, err
		}
		i, err := get(t.Items, "ItemNotFound", "item", a.Key)
		if err != nil {
			return nil, err
		}
		delete(t.Items, a.Key)
		c.things--
		return object{"Deleted": i}, nil
	})
	on(c, b, readsCloud, "dynamodb_query", "Read the items whose key begins with a text, in the order of their keys.", func(a struct {
		Table  string `json:"table" jsonschema:"name of the table"`
		Prefix string `json:"key_prefix" jsonschema:"what the key begins with"`
		After  string `json:"after,omitempty" jsonschema:"the LastEvaluatedKey of the page before"`
		Limit  int    `json:"limit,omitempty" jsonschema:"at most so many, 1 to 500; 50 if not given"`
	},
	) (any, error) {
		t, err := c.table(a.Table)
		if err != nil {
			return nil, err
		}
		return t.page(a.After, a.Limit, func(k string, _ object) bool { return strings.HasPrefix(k, a.Prefix) })
	})
	on(c, b, readsCloud, "dynamodb_scan", "Read all items, or those with a given attribute, in the order of their keys.", func(a struct {
		Table  string `json:"table" jsonschema:"name of the table"`
		Equals object `json:"equals,omitempty" jsonschema:"attributes that an item must have, and their values"`
		After  string `json:"after,omitempty" jsonschema:"the LastEvaluatedKey of the page before"`
		Limit  int    `json:"limit,omitempty" jsonschema:"at most so many, 1 to 500; 50 if not given"`
	},
	) (any, error) {
		t, err := c.table(a.Table)
		if err != nil {
			return nil, err
		}
		return t.page(a.After, a.Limit, func(_ string, item object) bool {
			for name, want := range a.Equals {
				if has, ok := item[name]; !ok || !reflect.DeepEqual(has, want) {
					return false
				}
			}
			return true
		})
	})
}
