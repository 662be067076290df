package sample

import (
	"fmt"
	"slices"
	"strings"
)

// A user is somebody who may do what the attached policies allow.
type user struct {
	Name     string   `json:"UserName"`
	Policies []string `json:"AttachedPolicies"` // sorted
}

// policyActions are the policies that there are, and the actions that each
// allows: whole services, or single actions, or reading.
var policyActions = map[string][]string{
	"AdministratorAccess":    {"*"},
	"DynamoDBFullAccess":     {"dynamodb:*"},
	"LambdaInvoke":           {"lambda:Invoke"},
	"ReadOnlyAccess":         {"*:Get*", "*:List*", "*:Describe*"},
	"S3FullAccess":           {"s3:*"},
	"S3ReadOnlyAccess":       {"s3:Get*", "s3:List*"},
	"SecurityAuditor":        {"iam:Get*", "iam:List*", "logs:*"},
	"ThrottledQueueConsumer": {"sqs:Receive*", "sqs:Delete*"},
}

// allows reports whether pattern, in which * may end a part, covers an action.
func allows(pattern, action string) bool {
	if pattern == "*" {
		return true
	}
	ps, pa, _ := strings.Cut(pattern, ":")
	s, a, _ := strings.Cut(action, ":")
	part := func(p, v string) bool {
		prefix, ends := strings.CutSuffix(p, "*")
		return p == v || ends && strings.HasPrefix(v, prefix)
	}
	return part(ps, s) && part(pa, a)
}

type userArgs struct {
	Name string `json:"user_name" jsonschema:"name of the user"`
}

type attachArgs struct {
	Name   string `json:"user_name" jsonschema:"name of the user"`
	Policy string `json:"policy" jsonschema:"name of the policy, as iam_list_policies tells"`
}

func (c *cloud) user(name string) (*user, error) {
	return get(c.users, "NoSuchEntity", "user", name)
}

// addIAM puts the tools for users and rights on the bench.
func (c *cloud) addIAM(b *bench) {
	on(c, b, readsCloud, "iam_list_users", "List the users of the account.", func(struct{}) (any, error) {
		return object{"Users": sorted(c.users)}, nil
	})
	on(c, b, readsCloud, "iam_get_user", "Describe a user.", func(a userArgs) (any, error) {
		return c.user(a.Name)
	})
	on(c, b, destroysCloud, "iam_create_user", "Create a user without rights.", func(a userArgs) (any, error) {
		if err := checkName("user", a.Name, plainName); err != nil {
			return nil, err
		}
		if err := free(c.users, "EntityAlreadyExists", "user", a.Name); err != nil {
			return nil, err
		}
		if err := c.take(); err != nil {
			return nil, err
		}
		u := &user{Name: a.Name, Policies: []string{}}
		c.users[a.Name] = u
		return u, nil
	})
	on(c, b, destroysCloud, "iam_delete_user", "Delete a user, from whom all policies must have been detached.", func(a userArgs) (any, error) {
		u, err := c.user(a.Name)
		if err != nil {
			return nil, err
		}
		if len(u.Policies) > 0 {
			return nil, fmt.Errorf("DeleteConflict: user %q has policies: %s", a.Name, strings.Join(u.Policies, ", "))
		}
		delete(c.users, a.Name)
		c.things--
		return object{"Deleted": a.Name}, nil
	})
	on(c, b, readsCloud, "iam_list_policies", "List the policies and the actions that they allow.", func(struct{}) (any, error) {
		return object{"Policies": policyActions}, nil
	})
	on(c, b, readsCloud, "iam_list_attached_user_policies", "List the policies of a user.", func(a userArgs) (any, error) {
		u, err := c.user(a.Name)
		if err != nil {
			return nil, err
		}
		return object{"AttachedPolicies": u.Policies}, nil
	})
	on(c, b, destroysCloud, "iam_attach_user_policy", "Give a user the rights of a policy.", func(a attachArgs) (any, error) {
		u, err := c.user(a.Name)
		if err != nil {
			return nil, err
		}
		if _, err := get(policyActions, "NoSuchEntity", "policy", a.Policy); err != nil {
			return nil, err
		}
		if !slices.Contains(u.Policies, a.Policy) {
			u.Policies = append(u.Policies, a.Policy)
			slices.Sort(u.Policies)
		}
		return u, nil
	})
	on(c, b, destroysCloud, "iam_detach_user_policy", "Take the rights of a policy from a user.", func(a attachArgs) (any, error) {
		u, err := c.user(a.Name)
		if err != nil {
			return nil, err
		}
		i := slices.Index(u.Policies, a.Policy)
		if i < 0 {
			return nil, fmt.Errorf("NoSuchEntity: user %q does not have policy %.80q", a.Name, a.Policy)
		}
		u.Policies = slices.Delete(u.Policies, i, i+1)
		return u, nil
	})
	on(c, b, readsCloud, "iam_simulate_principal_policy", "Tell whether a user's policies allow an action.", func(a struct {
		Name   string `json:"user_name" jsonschema:"name of the user"`
		Action string `json:"action" jsonschema:"the action, as s3:GetObject"`
	},
	) (any, error) {
		u, err := c.user(a.Name)
		if err != nil {
			return nil, err
		}
		if service, verb, ok := strings.Cut(a.Action, ":"); !ok || service == "" || verb == "" {
			return nil, fmt.Errorf("ValidationError: action %.80q: want the form service:Action", a.Action)
		}
		for _, p := range u.Policies {
			if slices.ContainsFunc(policyActions[p], func(pattern string) bool { return allows(pattern, a.Action) }) {
				return object{"EvalDecision": "allowed", "MatchedPolicy": p}, nil
			}
		}
		return object{"EvalDecision": "implicitDeny"}, nil
	})
}
